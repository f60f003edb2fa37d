/** The picture of parallel coordinates; dragging along an axis filters. */
import { h, rebuilder, setHidden, smallButton } from '../dom/dom.js';
import type { Focus } from './focus.js';
import { formatNumber } from '../model/format.js';
import type { ISearchState } from '../model/state.js';
import {
  layoutParallel,
  nearestLine,
  toRange,
  type ILine,
  type IParallelAxis,
  type IParallelLayout
} from './parallel.js';
import { drawAxis, drawLine } from './paralleldraw.js';
import { describe, rankRows, ranks } from '../model/rows.js';
import { Stage, type IBrush } from '../dom/stage.js';
import { NUM_SHADES } from '../dom/theme.js';
import type { ITrans } from '../model/trans.js';

const HEIGHT = 240;
/** The distance from an axis within which a drag filters, in pixels. */
const AXIS_REACH = 12;
const MIN_DRAG = 4;
/** The number of best trials with strong lines. */
const NUM_STRONG = 5;
/** The number of lines from which on they are drawn fainter. */
const FULL = 80;

interface IDrag {
  axis: number;
  from: number;
}

export class ParallelPicture {
  readonly stage: Stage;

  constructor(
    private readonly _trans: ITrans,
    private readonly _focus: Focus
  ) {
    this.stage = new Stage({
      title: _trans.__('Hyperparameters'),
      height: HEIGHT,
      draw: brush => this._draw(brush),
      onPoint: at => this._onPoint(at),
      onClick: at => this._onClick(at),
      onKey: key => this._onKey(key)
    });
    const { canvas } = this.stage;
    canvas.addEventListener('pointerdown', event => this._startDrag(event));
    canvas.addEventListener('pointermove', event => this._drag(event));
    canvas.addEventListener('pointerup', () => {
      this._dragging = null;
    });
    this._clear = smallButton(_trans.__('Clear filter'), () => _focus.clearBrushes(), {
      hidden: true
    });
    _focus.onChange(() => setHidden(this._clear, _focus.brushes.size === 0));
    this.stage.head.append(this._clear);
    this._drawLegend = rebuilder(this.stage.foot, (ends: string[]) => this._legend(ends));
  }

  update(search: ISearchState): void {
    this._search = search;
    this._layout = undefined;
    this._ranks = ranks(search);
    const ranked = rankRows(search).filter(row => row.best !== null);
    this._drawLegend(
      [ranked.at(-1), ranked[0]].flatMap(row => (row ? [formatNumber(row.best)] : []))
    );
    this.stage.describe(
      this._trans.__(
        '%1 hyperparameters and %2 of %3 trials; arrow keys go from the best to the worst, ' +
          'Enter chooses; the table can be sorted by each of them',
        search.axes.length,
        search.metric,
        search.rows.length
      )
    );
    this.stage.redraw();
  }

  /** The legend; empty before a trial has the metric. */
  private _legend([worst, best]: string[]): HTMLElement[] {
    const trans = this._trans;
    if (best === undefined) {
      return [];
    }
    const metric = this._search?.metric ?? '';
    return [
      h('span.det-legend-item', {}, `${trans.__('worst')} ${worst}`),
      h('i.det-ramp', { 'aria-hidden': 'true' }),
      h('span.det-legend-item', {}, `${trans.__('best')} ${best}`),
      h(
        'span.det-quiet',
        {},
        trans.__('colour: order by %1 · drag along an axis to filter', metric)
      )
    ];
  }

  private _onPoint(at: { x: number; y: number } | null): void {
    if (this._dragging !== null) {
      return;
    }
    const line =
      at === null || this._layout === undefined ? null : nearestLine(this._layout, at.x, at.y);
    this._read(line?.row.id ?? null);
  }

  private _read(trialId: number | null): string {
    const row = this._search?.rows.find(one => one.id === trialId);
    const text = row === undefined ? '' : describe(row, this._search as ISearchState, this._trans);
    this.stage.read(text);
    this._focus.point(trialId);
    return text;
  }

  private _onClick(at: { x: number; y: number }): void {
    if (this._hasDragged || this._layout === undefined) {
      return;
    }
    const axis = this._axisAt(at.x);
    if (axis !== -1 && this._focus.brushes.has(axis)) {
      this._focus.brush(axis, null);
      return;
    }
    const line = nearestLine(this._layout, at.x, at.y);
    this._focus.choose(line === null || line.row.id === this._focus.chosen ? null : line.row.id);
  }

  private _onKey(key: string): boolean {
    const search = this._search as ISearchState;
    const ranked = rankRows(search).filter(row => this._focus.keeps(row));
    const place = ranked.findIndex(row => row.id === this._focus.pointed);
    const wanted: Record<string, number> = {
      ArrowUp: Math.max(0, place - 1),
      ArrowDown: place + 1,
      Home: 0,
      End: ranked.length - 1
    };
    const next = wanted[key];
    if (next !== undefined) {
      const row = ranked[Math.min(next, ranked.length - 1)];
      this.stage.speak(this._read(row?.id ?? null));
    } else if (key === 'Escape' && this._focus.brushes.size > 0) {
      this._focus.clearBrushes();
    } else if (key === 'Escape' && this._focus.chosen !== null) {
      this._focus.choose(null);
    } else if ((key === 'Enter' || key === ' ') && this._focus.pointed !== null) {
      this._focus.choose(this._focus.pointed);
    } else {
      return false;
    }
    return true;
  }

  private _axisAt(x: number): number {
    return this._layout?.axes.findIndex(axis => Math.abs(axis.x - x) <= AXIS_REACH) ?? -1;
  }

  private _startDrag(event: PointerEvent): void {
    const { x, y } = this.stage.at(event);
    const axis = this._axisAt(x);
    this._hasDragged = false;
    this._dragging = axis === -1 ? null : { axis, from: y };
    if (axis !== -1) {
      this.stage.canvas.setPointerCapture(event.pointerId);
    }
  }

  private _drag(event: PointerEvent): void {
    const { x, y } = this.stage.at(event);
    this.stage.canvas.style.cursor = this._axisAt(x) === -1 ? '' : 'ns-resize';
    const [dragging, layout] = [this._dragging, this._layout];
    if (dragging === null || layout === undefined || Math.abs(y - dragging.from) < MIN_DRAG) {
      return;
    }
    this._hasDragged = true;
    const axis = layout.axes[dragging.axis] as IParallelAxis;
    this._focus.brush(dragging.axis, toRange(axis, dragging.from, y, layout));
  }

  private _draw(brush: IBrush): void {
    const search = this._search;
    if (search === undefined) {
      return;
    }
    if (this._layout === undefined || this._laidOutFor !== brush.width) {
      this._layout = layoutParallel(search, brush.width, brush.height);
      this._laidOutFor = brush.width;
    }
    const layout = this._layout;
    this._drawLines(brush, layout);
    layout.axes.forEach((_, i) => drawAxis(brush, layout, i, this._focus.brushes.get(i)));
  }

  private _drawLines({ context, theme }: IBrush, layout: IParallelLayout): void {
    const { chosen, pointed } = this._focus;
    const rank = (line: ILine): number => this._ranks.get(line.row.id) ?? 2;
    const alpha = Math.min(0.65, Math.max(0.12, FULL / layout.lines.length));
    const numRanked = Math.max(1, this._ranks.size - 1);
    for (const line of layout.lines.toSorted((a, b) => rank(b) - rank(a))) {
      const place = rank(line);
      const isStrong = place * numRanked < NUM_STRONG;
      const isKept = this._focus.keeps(line.row);
      context.strokeStyle =
        place <= 1
          ? (theme.shades[Math.round((1 - place) * (NUM_SHADES - 1))] as string)
          : theme.text;
      context.lineWidth = isStrong ? 2.2 : 1;
      context.globalAlpha = !isKept ? 0.05 : isStrong ? 1 : alpha;
      context.setLineDash(place <= 1 ? [] : [3, 3]);
      drawLine(context, layout, line);
    }
    context.setLineDash([]);
    context.globalAlpha = 1;
    context.strokeStyle = theme.strong;
    for (const line of layout.lines.filter(({ row }) => row.id === chosen || row.id === pointed)) {
      context.lineWidth = line.row.id === chosen ? 3 : 2;
      drawLine(context, layout, line);
    }
  }

  private readonly _clear: HTMLElement;
  private readonly _drawLegend: (ends: string[]) => void;
  private _search: ISearchState | undefined;
  private _ranks = new Map<number, number>();
  private _layout: IParallelLayout | undefined;
  private _laidOutFor = 0;
  private _dragging: IDrag | null = null;
  private _hasDragged = false;
}
