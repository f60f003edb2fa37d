/** Draws the lines and axes of parallel coordinates. */
import { toY, type ILine, type IParallelAxis, type IParallelLayout } from './parallel.js';
import { placeOn, ticksOf } from '../model/scales.js';
import { fitted, type IBrush } from '../dom/stage.js';

/** Draw a trial's line, with a gap where it has no value. */
export function drawLine(
  context: CanvasRenderingContext2D,
  { axes }: IParallelLayout,
  { ys }: ILine
): void {
  context.beginPath();
  let isDown = false;
  ys.forEach((y, i) => {
    if (y !== null) {
      const { x } = axes[i] as IParallelAxis;
      context[isDown ? 'lineTo' : 'moveTo'](x, y);
    }
    isDown = y !== null;
  });
  context.stroke();
}

/** Draw tick labels with a background, to be legible over lines. */
function drawTicks({ context, theme }: IBrush, layout: IParallelLayout, place: number): void {
  const { axis, x } = layout.axes[place] as IParallelAxis;
  const isLast = place === layout.axes.length - 1;
  context.textAlign = 'left';
  context.lineWidth = 4;
  context.lineJoin = 'round';
  context.strokeStyle = theme.ground;
  context.fillStyle = theme.strong;
  for (const tick of ticksOf(axis)) {
    const y = toY(tick.place, layout);
    const label = isLast ? tick.label : fitted(context, tick.label, strideOf(layout) - 10);
    context.strokeText(label, x + 5, y);
    context.fillText(label, x + 5, y);
  }
}

/** The distance of neighbouring axes. */
function strideOf({ axes }: IParallelLayout): number {
  return (axes[1]?.x ?? Infinity) - (axes[0]?.x ?? 0);
}

/** Draw an axis with its name, ticks and filtered range. */
export function drawAxis(
  brush: IBrush,
  layout: IParallelLayout,
  place: number,
  range: readonly [number, number] | undefined
): void {
  const { context, theme } = brush;
  const { axis, x } = layout.axes[place] as IParallelAxis;
  context.strokeStyle = theme.text;
  context.lineWidth = 1;
  context.beginPath();
  context.moveTo(x + 0.5, layout.top);
  context.lineTo(x + 0.5, layout.bottom);
  context.stroke();
  drawName(brush, layout, place);
  drawTicks(brush, layout, place);
  if (range !== undefined) {
    const [a, b] = range.map(value => toY(placeOn(axis, value), layout)) as [number, number];
    context.strokeStyle = theme.brand;
    context.lineWidth = 8;
    context.globalAlpha = 0.6;
    context.beginPath();
    context.moveTo(x, a);
    context.lineTo(x, b);
    context.stroke();
    context.globalAlpha = 1;
  }
}

/** Draw an axis's name: the first and last aligned to the edges, others centred. */
function drawName({ context, theme, width }: IBrush, layout: IParallelLayout, place: number): void {
  const { axis, x } = layout.axes[place] as IParallelAxis;
  const room = Math.min(strideOf(layout), width) - 8;
  const isFirst = place === 0;
  const isLast = place === layout.axes.length - 1;
  context.textAlign = isFirst ? 'left' : isLast ? 'right' : 'center';
  context.fillStyle = theme.strong;
  context.font = `600 ${theme.font}`;
  const at = isFirst ? 4 : isLast ? width - 4 : x;
  context.fillText(fitted(context, axis.name, room), at, 9);
  context.font = theme.font;
}
