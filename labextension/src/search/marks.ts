/** Draws the mark of a trial at a rung. */
import { drawing, h } from '../dom/dom.js';
import type { ITheme } from '../dom/theme.js';
import { MARKS, type Mark } from '../model/state.js';
import type { ITrans } from '../model/trans.js';

/** The scale of marks, compared to those of the static card. */
const ENLARGED = 1.15;

export function drawMark(
  context: CanvasRenderingContext2D,
  theme: ITheme,
  { mark, x, y }: { mark: Mark; x: number; y: number },
  scale = 1
): void {
  const look = MARKS[mark];
  context.save();
  context.translate(x, y);
  context.scale(ENLARGED * scale, ENLARGED * scale);
  const path = new Path2D(look.path);
  if (look.is_filled) {
    context.fillStyle = theme[look.tone];
    context.fill(path);
  } else {
    context.strokeStyle = theme[look.tone];
    context.lineWidth = 1.5;
    context.stroke(path);
  }
  context.restore();
}

/** A mark with its meaning, for legends. */
export function markKey(mark: Mark, trans: ITrans): HTMLElement {
  const look = MARKS[mark];
  const svg = drawing(
    { viewBox: '-5 -5 10 10', class: 'det-mark', 'data-tone': look.tone },
    {
      d: look.path,
      fill: look.is_filled ? 'currentColor' : 'none',
      stroke: look.is_filled ? 'none' : 'currentColor',
      'stroke-width': 1.4
    }
  );
  return h('span.det-legend-item', {}, svg, trans.__(look.word));
}
