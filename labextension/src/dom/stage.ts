/**
 * A picture on a canvas with its caption: sharp on every screen, drawn at most once a frame, and
 * only while it is laid out. What it shows is drawn, read and moved in by others.
 */
import { h, setAttribute, setText } from './dom.js';
import { readTheme, type ITheme } from './theme.js';

export interface IBrush {
  context: CanvasRenderingContext2D;
  theme: ITheme;
  width: number;
  height: number;
}

export interface IStageOptions {
  title: string;
  height: number;
  draw: (brush: IBrush) => void;
  /** Called with the position of the pointer; `null` when it has left. */
  onPoint: (at: { x: number; y: number } | null) => void;
  onClick: (at: { x: number; y: number }) => void;
  /** Handles a key; returns whether it did. */
  onKey: (key: string) => boolean;
}

export class Stage {
  readonly node: HTMLElement;
  /** The element for legends and buttons. */
  readonly head = h('div.det-figure-head');
  readonly foot = h('div.det-legend');
  readonly canvas = h('canvas', { 'aria-hidden': 'true' });

  constructor(private readonly _options: IStageOptions) {
    this._host = h('div.det-stage', { role: 'img', tabindex: 0 }, this.canvas);
    this._host.style.height = `${_options.height}px`;
    this.head.append(h('span.det-chart-title', {}, _options.title), this._readout);
    this.node = h('figure.det-figure', {}, this.head, this._host, this.foot, this._spoken);
    this._host.addEventListener('keydown', event => this._onKey(event));
    this._host.addEventListener('pointermove', event => _options.onPoint(this.at(event)));
    this._host.addEventListener('pointerleave', () => _options.onPoint(null));
    this._host.addEventListener('blur', () => _options.onPoint(null));
    this._host.addEventListener('click', event => _options.onClick(this.at(event)));
    this._sizes = new ResizeObserver(() => this.redraw());
    this._sizes.observe(this._host);
  }

  get width(): number {
    return this._host.clientWidth;
  }

  get height(): number {
    return this._options.height;
  }

  /** The position of a pointer event in the picture. */
  at(event: MouseEvent): { x: number; y: number } {
    const box = this._host.getBoundingClientRect();
    return { x: event.clientX - box.left, y: event.clientY - box.top };
  }

  describe(text: string): void {
    setAttribute(this._host, 'aria-label', text);
  }

  /** Show a text about the item at the pointer or cursor. */
  read(text: string): void {
    setText(this._readout, text);
    setAttribute(this._readout, 'title', text);
  }

  /** Announce a text to screen readers. */
  speak(text: string): void {
    setText(this._spoken, text);
  }

  /** Draw in the next frame. */
  redraw(): void {
    if (this._frame === 0) {
      this._frame = requestAnimationFrame(() => {
        this._frame = 0;
        this._draw();
      });
    }
  }

  /** Apply the colours of a changed theme. */
  restyle(): void {
    this._theme = undefined;
    this.redraw();
  }

  dispose(): void {
    cancelAnimationFrame(this._frame);
    this._sizes.disconnect();
  }

  private _draw(): void {
    const context = this.canvas.getContext('2d');
    const { width, height } = this;
    if (context === null || width === 0) {
      return; // not laid out yet: the ResizeObserver calls again
    }
    const density = devicePixelRatio || 1;
    const [w, tall] = [Math.round(width * density), Math.round(height * density)];
    if (this.canvas.width !== w || this.canvas.height !== tall) {
      this.canvas.width = w;
      this.canvas.height = tall;
    }
    context.setTransform(density, 0, 0, density, 0, 0);
    context.clearRect(0, 0, width, height);
    this._theme ??= readTheme(this.node);
    context.font = this._theme.font;
    context.textBaseline = 'middle';
    this._options.draw({ context, theme: this._theme, width, height });
  }

  private _onKey(event: KeyboardEvent): void {
    if (this._options.onKey(event.key)) {
      event.preventDefault();
      event.stopPropagation(); // notebooks move between cells with these keys
    }
  }

  private readonly _host: HTMLElement;
  private readonly _readout = h('span.det-quiet.det-readout');
  private readonly _spoken = h('div.det-unseen', { 'aria-live': 'polite' });
  private readonly _sizes: ResizeObserver;
  private _frame = 0;
  private _theme: ITheme | undefined;
}

/**
 * Draws horizontal lines with labels to their left, and labels below the picture, centred.
 *
 * @param left The left end of the lines.
 */
export function drawGrid(
  { context, theme, width, height }: IBrush,
  left: number,
  ticks: readonly { y: number; label: string }[],
  below: readonly { x: number; label: string }[] = []
): void {
  context.strokeStyle = theme.grid;
  context.fillStyle = theme.text;
  context.lineWidth = 1;
  context.textAlign = 'right';
  for (const { y, label } of ticks) {
    context.fillText(label, left - 6, y);
    context.beginPath();
    context.moveTo(left, y);
    context.lineTo(width, y);
    context.stroke();
  }
  context.textAlign = 'center';
  const gaps = below.slice(1).map(({ x }, i) => x - (below[i]?.x ?? 0));
  const room = Math.min(width - left, ...gaps) - 6;
  for (const { x, label } of below) {
    const shown = fitted(context, label, room);
    const half = context.measureText(shown).width / 2;
    context.fillText(shown, Math.max(half, Math.min(x, width - half)), height - 9);
  }
}

/** The first of several rows of texts that all fit in a width; if none, empty texts. */
export function firstFitting(
  context: CanvasRenderingContext2D,
  choices: readonly (readonly string[])[],
  width: number
): readonly string[] {
  const fits = (text: string): boolean => context.measureText(text).width <= width;
  return choices.find(row => row.every(fits)) ?? (choices[0] ?? []).map(() => '');
}

/** Text shortened to a width, with an ellipsis. */
export function fitted(context: CanvasRenderingContext2D, text: string, width: number): string {
  if (context.measureText(text).width <= width) {
    return text;
  }
  let length = Math.max(1, Math.floor((text.length * width) / context.measureText(text).width));
  while (length > 1 && context.measureText(`${text.slice(0, length)}…`).width > width) {
    length -= 1;
  }
  return `${text.slice(0, length)}…`;
}
