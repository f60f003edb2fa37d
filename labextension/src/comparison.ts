/** The view of a comparison: curves, tables and differences of code. */
import { Board, type MakeChart } from './charts/metricboard.js';
import { h, rebuilder, setAttribute } from './dom/dom.js';
import { icon } from './dom/icons.js';
import type {
  IChart,
  IComparisonState,
  IFact,
  ISide,
  IFactTable,
  ICodeDifference
} from './model/state.js';
import type { Settings } from './model/viewsettings.js';
import { isDashed, NUM_COLORS, watchTheme } from './dom/theme.js';
import { english, type ITrans } from './model/trans.js';

export interface IComparisonOptions {
  makeChart: MakeChart;
  settings: Settings;
  trans?: ITrans;
}

export class ComparisonView {
  readonly node: HTMLElement;

  constructor(options: IComparisonOptions) {
    this._trans = options.trans ?? english;
    setAttribute(this._sides, 'aria-label', this._trans.__('Curves'));
    this._board = new Board(this._trans, options.makeChart, options.settings);
    this.node = h(
      'article.det-view.det-comparison',
      {},
      this._head,
      h('div.det-line', {}, this._sides, h('div.det-aside', {}, this._board.tools)),
      this._board.node,
      this._tables,
      this._code
    );
    this._unwatchTheme = watchTheme(() => this._board.restyle());
  }

  update(state: IComparisonState): void {
    this._state = state;
    this.node.setAttribute('aria-label', state.title);
    this._drawHead(state);
    this._drawSides(state.sides);
    this._drawTables(state);
    this._drawCode(state);
    this._drawBoard();
  }

  dispose(): void {
    this._unwatchTheme();
    this._board.dispose();
    this.node.remove();
  }

  private _drawBoard(): void {
    const state = this._state;
    if (state === undefined) {
      return;
    }
    this._board.update({
      charts: state.charts.map(chart => this._shownOf(chart)).filter(hasCurves),
      more_metrics: state.more_metrics,
      no_metrics: state.no_metrics || this._trans.__('No curves are chosen.'),
      steps_per_epoch: null
    });
    this._board.choose(this._pinned);
  }

  private _shownOf(chart: IChart): IChart {
    const series = chart.series.filter(one => !this._hidden.has(one.trial_id));
    return series.length === chart.series.length ? chart : { ...chart, series };
  }

  private _side(side: ISide): HTMLElement {
    const button = h(
      'button.det-button.det-side',
      {
        type: 'button',
        'aria-pressed': 'true',
        title: this._trans.__('Show or hide its curves')
      },
      key(side),
      side.label,
      icon(side.status)
    );
    button.addEventListener('click', () => {
      const isShown = this._hidden.delete(side.id);
      if (!isShown) {
        this._hidden.add(side.id);
      }
      setAttribute(button, 'aria-pressed', String(isShown));
      this._drawBoard();
    });
    button.addEventListener('pointerenter', () => this._board.choose(side.id));
    button.addEventListener('pointerleave', () => this._board.choose(this._pinned));
    return button;
  }

  /** A column's heading, with a button that highlights the curves of this side. */
  private _heading(side: ISide): HTMLElement {
    const name = h(
      'button.det-link',
      {
        type: 'button',
        'aria-pressed': 'false',
        'data-side': side.id,
        title: this._trans.__('Make its curves stand out')
      },
      side.label
    );
    name.addEventListener('click', () => {
      this._pinned = this._pinned === side.id ? null : side.id;
      this._tables.querySelectorAll('.det-link').forEach(one => {
        const isPinned = one.getAttribute('data-side') === String(this._pinned);
        setAttribute(one, 'aria-pressed', String(isPinned));
      });
      this._drawBoard();
    });
    const note = side.note ? h('span.det-quiet', {}, ` ${side.note}`) : null;
    return h('th', { scope: 'col' }, key(side), ' ', name, note);
  }

  private _table(table: IFactTable, sides: ISide[]): HTMLElement {
    if (table.facts.length === 0) {
      return h('p.det-quiet', {}, table.empty);
    }
    const head = h('tr', {}, h('th', { scope: 'col' }, table.title));
    head.append(...sides.map(side => this._heading(side)));
    const rows = table.facts.map(fact =>
      h('tr', {}, h('th', { scope: 'row' }, fact.name), ...this._cells(fact))
    );
    return h(
      'div.det-table-box',
      { tabindex: 0, role: 'region', 'aria-label': table.title },
      h('table.det-table', {}, h('thead', {}, head), h('tbody', {}, ...rows))
    );
  }

  private _cells(fact: IFact): HTMLElement[] {
    return fact.values.map((value, place) => {
      const isBest = fact.best.includes(place);
      return h('td', {}, isBest ? h('b', {}, `${value} ★`) : value, isBest ? this._best() : null);
    });
  }

  private _best(): HTMLElement {
    return h('span.det-unseen', {}, this._trans.__('the best'));
  }

  private readonly _trans: ITrans;
  private readonly _board: Board;
  private readonly _unwatchTheme: () => void;
  private readonly _head = h('header');
  private readonly _sides = h('div.det-buttons', { role: 'group' });
  private readonly _tables = h('div.det-compared');
  private readonly _code = h('section.det-code');
  private readonly _hidden = new Set<number>();
  private _pinned: number | null = null;
  private _state: IComparisonState | undefined;

  private readonly _drawHead = rebuilder(
    this._head,
    ({ title, notes }: Pick<IComparisonState, 'title' | 'notes'>) => [
      h('div.det-title', {}, h('span.det-name', {}, title)),
      ...notes.map(note => h('p.det-quiet', {}, note))
    ]
  );
  private readonly _drawSides = rebuilder(this._sides, (sides: ISide[]) =>
    sides.map(side => this._side(side))
  );
  private readonly _drawTables = rebuilder(
    this._tables,
    ({ tables, sides }: Pick<IComparisonState, 'tables' | 'sides'>) =>
      tables.map(table => this._table(table, sides))
  );
  private readonly _drawCode = rebuilder(
    this._code,
    ({ code, no_code, sides }: Pick<IComparisonState, 'code' | 'no_code' | 'sides'>) =>
      code.length === 0
        ? [h('p.det-quiet', {}, no_code)]
        : [
            h('b', {}, this._trans.__('Code')),
            ...code.map(one => codeDifference(one, sides, code.length))
          ]
  );
}

function hasCurves(chart: IChart): boolean {
  return chart.series.length > 0;
}

function key(side: ISide): HTMLElement {
  return h('i', {
    class: `det-key det-mod-line${isDashed(side.look) ? ' det-mod-dashed' : ''}`,
    'data-series': side.look % NUM_COLORS
  });
}

/** Differences of more lines, or more than `OPEN_FILES` of them, are folded. */
const OPEN_LINES = 40;
const OPEN_FILES = 3;

export function codeDifference(
  { name, side, lines }: ICodeDifference,
  sides: readonly ISide[],
  numDifferences: number
): HTMLElement {
  const between = `${sides[0]?.label ?? ''} → ${sides[side]?.label ?? ''}`;
  return h(
    'details',
    { open: lines.length <= OPEN_LINES && numDifferences <= OPEN_FILES },
    h('summary', {}, name, h('span.det-quiet', {}, ` ${between}`)),
    h('pre.det-diff', { tabindex: 0 }, ...lines.map(line => markedLine(line)))
  );
}

function markedLine(line: string): HTMLElement {
  const isFile = line.startsWith('+++') || line.startsWith('---');
  const kind = isFile
    ? 'file'
    : ({ '+': 'added', '-': 'removed', '@': 'place' }[line[0] ?? ''] ?? 'same');
  return h('span', { 'data-kind': kind }, `${line}\n`);
}
