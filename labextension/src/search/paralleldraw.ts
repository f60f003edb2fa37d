/** Draws the lines and axes of parallel coordinates. */
import { toY, type ILine, type IParallelAxis, type IParallelLayout } from './parallel.js';
import { placeOn, ticksOf } from '../model/scales.js';
import { fitted, type IBrush } from '../dom/stage.js';
import type { ITheme } from '../dom/theme.js';

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

/** Draw a tick label with a background, to be legible over lines. */
function drawTick(
  context: CanvasRenderingContext2D,
  theme: ITheme,
  x: number,
  y: number,
  label: string
): void {
  context.lineWidth = 4;
  context.lineJoin = 'round';
  context.strokeStyle = theme.ground;
  context.strokeText(label, x + 5, y);
  context.fillStyle = theme.strong;
  context.fillText(label, x + 5, y);
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
  context.textAlign = 'left';
  for (const tick of ticksOf(axis)) {
    drawTick(context, theme, x, toY(tick.place, layout), tick.label);
  }
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
  const room = (layout.axes[1]?.x ?? width) - (layout.axes[0]?.x ?? 0) - 8;
  const isFirst = place === 0;
  const isLast = place === layout.axes.length - 1;
  context.textAlign = isFirst ? 'left' : isLast ? 'right' : 'center';
  context.fillStyle = theme.strong;
  context.font = `600 ${theme.font}`;
  const at = isFirst ? 4 : isLast ? width - 4 : x;
  context.fillText(fitted(context, axis.name, room), at, 9);
  context.font = theme.font;
}
