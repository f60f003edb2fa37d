/**
 * A plot on the page: uPlot, used in charts/ only, with a title, a legend and a cursor for
 * the keyboard. What it shows, and how that looks, is its subclass's.
 */
import uPlot from 'uplot';

import { h, setAttribute, setHidden, setText } from '../dom/dom.js';
import type { ITrans } from '../model/trans.js';
import { HEIGHT, zoomed, type Range } from './uplotparts.js';

/** uPlot's typings lack the last argument, which moves the cursors of the other plots too. */
type SetCursor = (at: { left: number; top: number }, fire: boolean, publish: boolean) => void;

/** A picture with its texts. */
export interface IFigureWords {
  title: string;
  /** For screen readers. */
  description: string;
  /** Shown instead of a picture; empty if there is one. */
  empty: string;
}

export abstract class Figure<Shown> {
  readonly node: HTMLElement;

  protected constructor(
    protected readonly _trans: ITrans,
    legend: HTMLElement,
    tools: HTMLElement | null = null
  ) {
    this.node = h(
      'figure.det-chart',
      {},
      h('figcaption.det-chart-head', {}, this._title, this._readout, tools),
      legend,
      this._host,
      this._empty,
      this._spoken
    );
    this._host.addEventListener('keydown', event => this._onKey(event));
    this._host.addEventListener('blur', () => this._moveCursor(-10));
    this._sizes = new ResizeObserver(() => this._resize());
    this._sizes.observe(this._host);
  }

  /** Apply the colours of a changed theme. */
  restyle(): void {
    if (this._plot !== undefined) {
      this._readTheme();
      this._plot.redraw(false, true);
    }
  }

  dispose(): void {
    this._sizes.disconnect();
    this._plot?.destroy();
    this._plot = undefined;
  }

  /** A new plot is made when this changes. */
  protected abstract _shapeOf(shown: Shown): string;
  protected abstract _columnsOf(shown: Shown): uPlot.AlignedData;
  protected abstract _options(width: number): uPlot.Options;
  /** Show the values at x, or the newest, in the legend; returns the text beside the title. */
  protected abstract _read(x: number | null, place: number): string;
  /** The legend as text, for screen readers. */
  protected abstract _legendText(): string;
  protected abstract _readTheme(): void;
  /** The part of the x axis that is shown. */
  protected abstract _range(): Range;
  protected abstract _onZoom(range: Range | null): void;

  protected _show(shown: Shown, { title, description, empty }: IFigureWords): void {
    this._shown = shown;
    setText(this._title, title);
    setAttribute(this._title, 'title', title);
    setAttribute(this._host, 'aria-label', description);
    setText(this._empty, empty);
    setHidden(this._empty, empty === '');
    setHidden(this._host, empty !== '');
  }

  /** Draw the current data. */
  protected _draw(): void {
    const width = this._host.clientWidth;
    if (this._shown === undefined || this._host.hidden || width === 0) {
      return; // not laid out yet: the ResizeObserver calls again
    }
    const shape = this._shapeOf(this._shown);
    const columns = this._columnsOf(this._shown);
    if (this._plot !== undefined && shape === this._shape) {
      this._plot.batch((plot: uPlot) => plot.setData(columns));
    } else {
      this._plot?.destroy();
      this._shape = shape;
      this._readTheme();
      this._plot = new uPlot(this._options(width), columns, this._host);
    }
    this._readCursor();
  }

  /** Show the values at the cursor, or the newest without a cursor. */
  protected _readCursor(): void {
    const place = this._plot?.cursor.idx ?? null;
    const x = place === null ? null : (this._plot?.data[0][place] ?? null);
    setText(this._readout, this._read(x, x === null ? -1 : (place as number)));
  }

  private _onKey(event: KeyboardEvent): void {
    const plot = this._plot;
    if (plot === undefined || event.ctrlKey || event.metaKey || event.altKey) {
      return;
    }
    const range = zoomed(event.key, event.shiftKey, this._range());
    const place = this._placeOf(event.key, plot);
    if (range === undefined && place === undefined) {
      return;
    }
    event.preventDefault();
    event.stopPropagation(); // notebooks move between cells with these keys
    if (range !== undefined) {
      this._onZoom(range);
    } else {
      this._moveCursor(plot.valToPos(plot.data[0][place as number] as number, 'x'));
      setText(this._spoken, `${this._readout.textContent}: ${this._legendText()}`);
    }
  }

  /** The index to which a key moves the cursor, within the shown range. */
  private _placeOf(key: string, plot: uPlot): number | undefined {
    const [min, max] = this._range();
    const xs = plot.data[0];
    const first = Math.max(
      0,
      xs.findIndex(x => x >= min)
    );
    const last = xs.findLastIndex(x => x <= max);
    const now = plot.cursor.idx ?? last;
    const places: Record<string, number> = {
      ArrowLeft: now - 1,
      ArrowRight: now + 1,
      Home: first,
      End: last
    };
    const wanted = places[key];
    return wanted === undefined ? undefined : Math.min(last, Math.max(first, wanted));
  }

  /** Move the cursor of all plots of the group; a negative position removes it. */
  private _moveCursor(left: number): void {
    const top = left < 0 ? left : HEIGHT / 2;
    (this._plot?.setCursor as SetCursor | undefined)?.({ left, top }, true, true);
  }

  private _resize(): void {
    const width = this._host.clientWidth;
    if (this._plot === undefined) {
      this._draw();
    } else if (width > 0 && this._plot.width !== width) {
      this._plot.setSize({ width, height: HEIGHT });
    }
  }

  protected _shown: Shown | undefined;
  protected _plot: uPlot | undefined;
  private readonly _title = h('span.det-chart-title');
  private readonly _readout = h('span.det-quiet');
  private readonly _host = h('div.det-plot', { role: 'img', tabindex: 0 });
  private readonly _empty = h('p.det-empty', { hidden: true });
  private readonly _spoken = h('div.det-unseen', { 'aria-live': 'polite' });
  private readonly _sizes: ResizeObserver;
  private _shape = '';
}
