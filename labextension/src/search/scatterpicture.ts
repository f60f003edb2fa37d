/** The scatter plot of any hyperparameter and any metric. */
import { h, rebuilder } from '../dom/dom.js';
import type { Focus } from './focus.js';
import { formatNumber } from '../model/format.js';
import { describe } from '../model/rows.js';
import type { ISearchState } from '../model/state.js';
import { nearestDot } from './rungs.js';
import {
  layoutScatter,
  nextScatterDot,
  scatterAxis,
  scatterMetric,
  type IScatterDot,
  type IScatterLayout
} from './scatter.js';
import type { Settings } from '../model/viewsettings.js';
import { drawGrid, Stage, type IBrush } from '../dom/stage.js';
import type { ITrans } from '../model/trans.js';

const HEIGHT = 240;
/** The number of dots from which on they are drawn fainter. */
const FULL = 200;

interface INames {
  names: string[];
  /** The metric whose best value is drawn, not the last. */
  best: string;
}

export class ScatterPicture {
  readonly stage: Stage;

  constructor(
    private readonly _trans: ITrans,
    private readonly _focus: Focus,
    private readonly _settings: Settings
  ) {
    this.stage = new Stage({
      title: _trans.__('Hyperparameter and metric'),
      height: HEIGHT,
      draw: brush => this._draw(brush),
      onPoint: at => this._point(at === null ? null : nearestDot(this._dots, at.x, at.y)),
      onClick: at => this._choose(nearestDot(this._dots, at.x, at.y)),
      onKey: key => this._onKey(key)
    });
    this._x = this._select(_trans.__('Hyperparameter'), name => ({ scatter_x: name }));
    this._y = this._select(_trans.__('Metric'), name => ({ scatter_y: name }));
    this._fillX = rebuilder(this._x, (shown: INames) => this._options(shown));
    this._fillY = rebuilder(this._y, (shown: INames) => this._options(shown));
    this.stage.head.querySelector('.det-chart-title')?.after(this._x, this._y);
    _settings.onChange(() => {
      if (this._search !== undefined) {
        this.update(this._search);
      }
    });
  }

  update(search: ISearchState): void {
    this._search = search;
    const { scatter_x, scatter_y } = this._settings.value;
    const axis = scatterAxis(search, scatter_x)?.name ?? '';
    const metric = scatterMetric(search, scatter_y).name;
    this._fillX({ names: search.axes.map(one => one.name), best: '' });
    this._fillY({
      names: [search.metric, ...search.metrics.map(one => one.name)],
      best: search.metric
    });
    [this._x.value, this._y.value] = [axis, metric];
    this.stage.describe(
      this._trans.__(
        '%1 of each trial by %2; arrow keys go from trial to trial, Enter chooses',
        metric,
        axis
      )
    );
    this.stage.redraw();
  }

  private _select(
    label: string,
    change: (name: string) => { scatter_x: string } | { scatter_y: string }
  ): HTMLSelectElement {
    const select = h('select.det-select', { 'aria-label': label });
    select.addEventListener('change', () => this._settings.change(change(select.value)));
    return select;
  }

  private _options({ names, best }: INames): HTMLElement[] {
    const text = (name: string): string =>
      name === best ? this._trans.__('%1 (best)', name) : this._trans.__('%1 (last)', name);
    return names.map(name => h('option', { value: name }, best === '' ? name : text(name)));
  }

  private get _dots(): readonly IScatterDot[] {
    return this._layout?.dots ?? [];
  }

  private _point(dot: IScatterDot | null): void {
    this._cursor = dot?.row.id ?? null;
    this.stage.read(dot === null ? '' : this._text(dot));
    this._focus.point(this._cursor);
  }

  private _text({ row, value }: IScatterDot): string {
    const search = this._search as ISearchState;
    const metric = scatterMetric(search, this._settings.value.scatter_y).name;
    const extra = metric === search.metric ? '' : ` · ${metric} ${formatNumber(value)}`;
    return describe(row, search, this._trans) + extra;
  }

  private _choose(dot: IScatterDot | null): void {
    const id = dot?.row.id ?? null;
    this._focus.choose(id === this._focus.chosen ? null : id);
  }

  private _onKey(key: string): boolean {
    const dot = this._dots.find(one => one.row.id === this._cursor) ?? null;
    if ((key === 'Enter' || key === ' ') && dot !== null) {
      this._focus.choose(dot.row.id);
      return true;
    }
    const next = nextScatterDot(this._dots, this._cursor, key);
    if (next === null) {
      return false;
    }
    this._point(next);
    this.stage.speak(this._text(next));
    return true;
  }

  private _draw(brush: IBrush): void {
    const search = this._search;
    const axis = search && scatterAxis(search, this._settings.value.scatter_x);
    if (search === undefined || axis === undefined) {
      return;
    }
    const metric = scatterMetric(search, this._settings.value.scatter_y);
    const { width, height, context, theme } = brush;
    const isLogY = this._settings.value.log_y;
    this._layout = layoutScatter(search, { axis, metric, isLogY, width, height });
    drawGrid(brush, this._layout.left, this._layout.yTicks, this._layout.xTicks);
    if (this._dots.length === 0) {
      const text = isLogY
        ? this._trans.__('no %1 above 0 yet', metric.name)
        : this._trans.__('no %1 yet', metric.name);
      context.fillText(text, width / 2, height / 2);
    }
    const { chosen, pointed } = this._focus;
    const alpha = Math.min(0.85, Math.max(0.35, FULL / this._dots.length));
    for (const { row, x, y } of this._dots) {
      context.globalAlpha = this._focus.keeps(row) ? alpha : 0.1;
      context.fillStyle = theme.brand;
      context.beginPath();
      context.arc(x, y, 4, 0, 2 * Math.PI);
      context.fill();
      context.globalAlpha = 1;
      if (row.id === chosen || row.id === pointed) {
        context.strokeStyle = theme.strong;
        context.lineWidth = row.id === chosen ? 2 : 1;
        context.beginPath();
        context.arc(x, y, 7, 0, 2 * Math.PI);
        context.stroke();
      }
    }
  }

  private readonly _x: HTMLSelectElement;
  private readonly _y: HTMLSelectElement;
  private readonly _fillX: (shown: INames) => void;
  private readonly _fillY: (shown: INames) => void;
  private _search: ISearchState | undefined;
  private _layout: IScatterLayout | undefined;
  private _cursor: number | null = null;
}
