/**
 * Follows series of a trial and shows them as pictures or tables, with a common zoom, for which finer
 * series are fetched.
 */
import { placeText } from '../charts/axes.js';
import { spaced } from '../charts/curves.js';
import { PlotGroup, type MakePlot } from '../charts/group.js';
import type { IPicture } from '../charts/picture.js';
import type { Range } from '../charts/uplotparts.js';
import {
  dataTable,
  h,
  rebuilder,
  setAttribute,
  setHidden,
  setText,
  smallButton
} from '../dom/dom.js';
import type { Settings } from '../model/viewsettings.js';
import type { ITrans } from '../model/trans.js';
import { LiveSeries, type IFollowed } from './live.js';
import { spanOf, type AskSeries } from './seriespages.js';
import type { ISeriesPage } from '../model/answers.js';

const TABLE_ROWS = 15;
const SETTLED_MS = 150;

export interface ISeriesBoardOptions {
  trans: ITrans;
  ask: AskSeries;
  slowHint: string;
  settings: Settings;
  /** The pictures of a page, with x relative to `origin`. */
  picture: (page: ISeriesPage, origin: number) => IPicture[];
  /** The text if there are no pictures. */
  empty: (page: ISeriesPage) => string;
  /** Called after each new page of the whole axis. */
  onPage?: (page: ISeriesPage) => void;
  makePlot?: MakePlot;
}

export class SeriesBoard {
  readonly node: HTMLElement;
  /** Its buttons. */
  readonly tools: HTMLElement;

  constructor(private readonly _options: ISeriesBoardOptions) {
    const { trans, ask, slowHint, settings, makePlot } = _options;
    this._group = new PlotGroup({
      trans,
      onZoom: range => this._onZoom(range),
      ...(makePlot && { makePlot })
    });
    this._live = new LiveSeries({
      ...{ ask, slowHint },
      onPage: page => this._accept(page),
      onNotice: text => setText(this._status, text)
    });
    this._wholeButton = smallButton(trans.__('Whole run'), () => this._group.setZoom(null));
    this._tableButton = smallButton(trans.__('Table'), () =>
      settings.change({ table: !settings.value.table })
    );
    settings.onChange(() => this._draw());
    this.tools = h('div.det-tools', {}, this._wholeButton, this._tableButton);
    const parts = [this._status, this._empty, this._group.node, this._tables];
    this.node = h('div.det-board', {}, ...parts);
    setText(this._empty, trans.__('Asking for what was measured…'));
    setHidden(this._wholeButton, true);
  }

  /** Follow series of a trial until it has ended. */
  follow(followed: IFollowed, isEnded: boolean): void {
    if (followed.axis !== this._followed?.axis || followed.trial_id !== this._followed.trial_id) {
      this._page = undefined;
      clearTimeout(this._settling);
      this._group.setZoom(null);
    }
    this._followed = followed;
    this._live.setEnded(isEnded);
    this._live.follow(followed);
  }

  setShown(isShown: boolean): void {
    this._live.setVisible(isShown);
  }

  restyle(): void {
    this._group.restyle();
  }

  dispose(): void {
    clearTimeout(this._settling);
    this._live.dispose();
    this._group.dispose();
  }

  /** The origin of x: the trial's beginning, or 0 batches. */
  private get _origin(): number {
    const page = this._live.whole;
    if (this._followed?.axis === 'batches' || page === undefined) {
      return 0;
    }
    return page.began_at ?? spanOf(page)?.[0] ?? 0;
  }

  private _accept(page: ISeriesPage): void {
    this._page = page;
    if (page === this._live.whole) {
      this._options.onPage?.(page);
    }
    this._draw();
  }

  private _draw(): void {
    const page = this._page;
    if (page === undefined) {
      return;
    }
    const { table } = this._options.settings.value;
    const pictures = this._options.picture(page, this._origin);
    setText(this._empty, pictures.length === 0 ? this._options.empty(page) : '');
    setHidden(this._empty, pictures.length > 0);
    setHidden(this._group.node, table);
    setHidden(this._tables, !table);
    setAttribute(this._tableButton, 'aria-pressed', String(table));
    const axis = this._followed?.axis === 'batches' ? 'step' : 'time';
    this._drawTables(table ? pictures.map(one => tableOf(one, axis, this._options.trans)) : []);
    this._group.update(table ? [] : pictures, { range: this._range(), axis, logX: false });
  }

  private _range(): Range {
    const [low, high] = spanOf(this._live.whole ?? (this._page as ISeriesPage)) ?? [0, 1];
    return [Math.min(0, low - this._origin), high - this._origin];
  }

  /** Debounced: finer series are fetched when the zoom has settled. */
  private _onZoom(range: Range | null): void {
    setHidden(this._wholeButton, range === null);
    clearTimeout(this._settling);
    const origin = this._origin;
    const ask = (): void =>
      this._live.setRange(range === null ? null : [range[0] + origin, range[1] + origin]);
    if (range === null) {
      ask();
    } else {
      this._settling = setTimeout(ask, SETTLED_MS);
    }
  }

  private readonly _group: PlotGroup;
  private readonly _live: LiveSeries;
  private readonly _wholeButton: HTMLElement;
  private readonly _tableButton: HTMLElement;
  private readonly _status = h('p.det-quiet', { role: 'status' });
  private readonly _empty = h('p.det-empty');
  private readonly _tables = h('div.det-grid');
  private readonly _drawTables = rebuilder(this._tables, (tables: ITableData[]) =>
    tables.map(one => dataTable({ ...one, isNumber: () => true }))
  );
  private _followed: IFollowed | undefined;
  private _page: ISeriesPage | undefined;
  private _settling: ReturnType<typeof setTimeout> | undefined;
}

interface ITableData {
  caption: string;
  head: string[];
  rows: string[][];
}

/** Formats a picture as a table of some positions, including the first and last. */
function tableOf(picture: IPicture, axis: 'step' | 'time', trans: ITrans): ITableData {
  const { x, curves, text, title, empty } = picture;
  const places = spaced([...x.keys()], TABLE_ROWS);
  const cell = (value: number | null | undefined): string =>
    value === null || value === undefined ? '–' : text(value);
  return {
    caption: empty === '' ? title : `${title}: ${empty}`,
    head: [axis === 'step' ? trans.__('Step') : trans.__('Time'), ...curves.map(c => c.label)],
    rows: places.map(place => [
      placeText(axis, x[place] as number, trans),
      ...curves.map(curve => cell(curve.values[place]))
    ])
  };
}
