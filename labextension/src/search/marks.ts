/** The shape and colour of a trial at a rung; told apart by shape alone, too. 10 by 10 units. */
import { h } from '../dom/dom.js';
import { MARK_WORDS, type Mark } from '../model/state.js';
import type { ITheme } from '../dom/theme.js';
import type { ITrans } from '../model/trans.js';

type Tone = 'brand' | 'good' | 'warn' | 'bad' | 'text';

interface IMarkShape {
  path: string;
  isFilled: boolean;
  tone: Tone;
}

export const SHAPES: Record<Mark, IMarkShape> = {
  promoted: { path: 'M0 -4.6L4.4 3.4H-4.4z', isFilled: true, tone: 'brand' },
  finished: { path: 'M0 -5L5 0L0 5L-5 0z', isFilled: true, tone: 'good' },
  running: { path: 'M-3.2 -4.4L4.6 0L-3.2 4.4z', isFilled: false, tone: 'brand' },
  resting: {
    path: 'M3.6 0A3.6 3.6 0 1 1 -3.6 0A3.6 3.6 0 1 1 3.6 0z',
    isFilled: false,
    tone: 'warn'
  },
  stopped: { path: 'M-3 -3H3V3H-3z', isFilled: true, tone: 'text' },
  failed: { path: 'M-3.4 -3.4L3.4 3.4M3.4 -3.4L-3.4 3.4', isFilled: false, tone: 'bad' },
  canceled: { path: 'M-4 0H4', isFilled: false, tone: 'text' }
};

export function drawMark(
  context: CanvasRenderingContext2D,
  theme: ITheme,
  { mark, x, y }: { mark: Mark; x: number; y: number },
  scale = 1
): void {
  const shape = SHAPES[mark];
  context.save();
  context.translate(x, y);
  context.scale(scale, scale);
  const path = new Path2D(shape.path);
  const color = theme[shape.tone];
  if (shape.isFilled) {
    context.fillStyle = color;
    context.fill(path);
  } else {
    context.strokeStyle = color;
    context.lineWidth = 1.7;
    context.stroke(path);
  }
  context.restore();
}

const SVG = 'http://www.w3.org/2000/svg';

/** A mark with its meaning, for legends. */
export function markKey(mark: Mark, trans: ITrans): HTMLElement {
  const shape = SHAPES[mark];
  const svg = document.createElementNS(SVG, 'svg');
  svg.setAttribute('viewBox', '-6 -6 12 12');
  svg.setAttribute('class', 'det-mark');
  svg.setAttribute('data-tone', shape.tone);
  svg.setAttribute('aria-hidden', 'true');
  const path = document.createElementNS(SVG, 'path');
  path.setAttribute('d', shape.path);
  path.setAttribute('fill', shape.isFilled ? 'currentColor' : 'none');
  path.setAttribute('stroke', shape.isFilled ? 'none' : 'currentColor');
  path.setAttribute('stroke-width', '1.7');
  svg.append(path);
  return h('span.det-legend-item', {}, svg, trans.__(MARK_WORDS[mark]));
}
