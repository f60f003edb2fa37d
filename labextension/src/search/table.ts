/** The sortable table of trials, in pages, so that a thousand trials stay fast. */
import { focusedIn, h, rebuilder, setAttribute, smallButton } from '../dom/dom.js';
import type { Focus } from './focus.js';
import type { ITrialRow, ISearchState } from '../model/state.js';
import { sortRows, type Brushes, type ISort } from '../model/rows.js';
import { tableHeadings, tableRow, type IHeading, type ITableRow } from './tablecells.js';
import type { ITrans } from '../model/trans.js';
import { icon } from '../dom/icons.js';

/** The number of rows at first, and on a page. */
const FEW = 10;
const PAGE = 50;

interface IPage {
  total: number;
  first: number;
  size: number;
  isFiltered: boolean;
}

export class TrialTable {
  readonly node: HTMLElement;

  constructor(
    private readonly _trans: ITrans,
    private readonly _focus: Focus
  ) {
    const caption = h('caption.det-unseen', {}, _trans.__('Trials'));
    const table = h('table.det-table.det-trial-table', {}, caption, this._head, this._body);
    this.node = h(
      'section.det-trial-list',
      { 'aria-label': _trans.__('Trials') },
      h('div.det-scroll', {}, table),
      this._foot
    );
    this._body.addEventListener('click', event => this._onClick(event));
    this._body.addEventListener('keydown', event => this._onKey(event));
    this._body.addEventListener('pointerover', event => _focus.point(rowIdOf(event.target)));
    this._body.addEventListener('focusin', event => this._onFocusIn(event));
    this._body.addEventListener('focusout', () => this._hold('focus', false));
    this.node.addEventListener('pointerenter', () => this._hold('pointer', true));
    this.node.addEventListener('pointerleave', () => {
      _focus.point(null);
      this._hold('pointer', false);
    });
  }

  update(search: ISearchState): void {
    this._search = search;
    this._draw();
  }

  /** Update after a change of pointed or chosen trial or filters. */
  refocus(): void {
    if (this._brushes !== this._focus.brushes) {
      this._brushes = this._focus.brushes;
      this._first = 0;
      this._draw();
    }
    if (this._shownChosen !== this._focus.chosen) {
      this._shownChosen = this._focus.chosen;
      this._bringIntoSight(this._focus.chosen);
      this._draw();
    }
    this._mark();
  }

  /** Keeps the order of rows while the pointer or focus is on them. */
  private _hold(by: 'focus' | 'pointer', isHeld: boolean): void {
    this._held[isHeld ? 'add' : 'delete'](by);
  }

  /** Holds the order only for keyboard focus, as a clicked row keeps the focus. */
  private _onFocusIn(event: FocusEvent): void {
    this._hold('focus', (event.target as Element).matches(':focus-visible'));
  }

  private _draw(): void {
    const search = this._search;
    if (search === undefined) {
      return;
    }
    this._drawHead({ headings: tableHeadings(search, this._trans), sort: this._sort });
    const rows = this._ordered(search);
    const first = Math.min(this._first, Math.max(0, rows.length - 1));
    const shown = rows.slice(first, first + this._size);
    this._drawBody(shown.map(row => tableRow(row, search, this._trans)));
    this._mark();
    const isFiltered = this._focus.brushes.size > 0;
    this._drawFoot({ total: rows.length, first, size: shown.length, isFiltered });
  }

  private _ordered(search: ISearchState): ITrialRow[] {
    const kept = search.rows.filter(row => this._focus.keeps(row));
    const sorted = sortRows(kept, this._sort, search.smaller_is_better);
    if (this._held.size === 0 || this._isMoved) {
      this._isMoved = false;
      this._order = new Map(sorted.map((row, i) => [row.id, i]));
      return sorted;
    }
    const last = this._order.size;
    return sorted.toSorted(
      (a, b) => (this._order.get(a.id) ?? last) - (this._order.get(b.id) ?? last)
    );
  }

  private _heading({ key, text, title, isNumber }: IHeading, sort: ISort): HTMLElement {
    const isSorted = key === sort.key;
    const isDown = isSorted && isDescending(sort, this._search as ISearchState);
    const button = h(
      'button.det-sort',
      { type: 'button', title: title || null, 'data-key': String(key) },
      h('span', {}, text),
      h('span', { 'aria-hidden': 'true' }, isSorted ? (isDown ? ' ▾' : ' ▴') : '')
    );
    button.addEventListener('click', () => {
      this._sort = { key, isReversed: isSorted && !sort.isReversed };
      this._isMoved = true;
      this._first = 0;
      this._draw();
      this._head.querySelector<HTMLElement>(`[data-key="${key}"]`)?.focus();
    });
    const order = isDown ? 'descending' : 'ascending';
    return h(
      isNumber ? 'th.det-number' : 'th',
      { scope: 'col', 'aria-sort': isSorted ? order : null },
      button
    );
  }

  /** Moves existing rows: one that is being clicked must not be replaced. */
  private _drawBody(rows: readonly ITableRow[]): void {
    const focused = rowIdOf(focusedIn(this._body));
    const gone = new Set(this._rows.keys());
    rows.forEach((row, place) => {
      gone.delete(row.id);
      const shown = this._rows.get(row.id) ?? newRow(row.id);
      this._rows.set(row.id, shown);
      shown.draw(row);
      if (this._body.children[place] !== shown.node) {
        this._body.insertBefore(shown.node, this._body.children[place] ?? null);
      }
    });
    for (const id of gone) {
      this._rows.get(id)?.node.remove();
      this._rows.delete(id);
    }
    if (focused !== null && rowIdOf(focusedIn(this._body)) !== focused) {
      this._rowElement(focused)?.focus();
    }
  }

  /** Mark the chosen and the pointed row, and set the tab stop. */
  private _mark(): void {
    const rows = [...this._body.children];
    const { chosen, pointed } = this._focus;
    const entry =
      rows.find(row => rowIdOf(row) === chosen) ??
      rows.find(row => row.contains(focusedIn(this._body))) ??
      rows[0];
    for (const row of rows) {
      const id = rowIdOf(row);
      setAttribute(row, 'aria-selected', String(id === chosen));
      setAttribute(row, 'data-pointed', id === pointed);
      setAttribute(row, 'tabindex', row === entry ? 0 : -1);
    }
  }

  private _footParts({ total, first, size, isFiltered }: IPage): (Node | string)[] {
    const trans = this._trans;
    const all = this._search?.rows.length ?? 0;
    if (all === 0) {
      return [trans.__('No trials yet.')];
    }
    const range = trans.__('%1–%2 of %3 trials', Math.min(first + 1, total), first + size, total);
    const parts: (Node | string)[] = [
      h('span', {}, isFiltered ? `${range} (${trans.__('%1 without filter', all)})` : range)
    ];
    if (total > FEW && this._size === FEW) {
      parts.push(this._pager(trans.__('Show more'), () => this._goTo(0, PAGE)));
    } else if (this._size === PAGE) {
      if (total > PAGE) {
        const back = this._pager(trans.__('Previous'), () => this._goTo(first - PAGE, PAGE));
        const on = this._pager(trans.__('Next'), () => this._goTo(first + PAGE, PAGE));
        setAttribute(back, 'disabled', first === 0);
        setAttribute(on, 'disabled', first + size >= total);
        parts.push(back, on);
      }
      parts.push(this._pager(trans.__('Show fewer'), () => this._goTo(0, FEW)));
    }
    return parts;
  }

  private _pager(text: string, go: () => void): HTMLElement {
    return smallButton(text, () => {
      go();
      const buttons = [...this._foot.querySelectorAll('button')].filter(one => !one.disabled);
      (buttons.find(one => one.textContent === text) ?? buttons[0])?.focus();
    });
  }

  private _goTo(first: number, size: number): void {
    this._first = Math.max(0, first);
    this._size = size;
    this._isMoved = true;
    this._draw();
  }

  /** Go to the page that a trial is on. */
  private _bringIntoSight(trialId: number | null): void {
    if (trialId === null || this._search === undefined || this._rowElement(trialId) !== null) {
      return;
    }
    const place = this._ordered(this._search).findIndex(row => row.id === trialId);
    if (place !== -1) {
      this._size = PAGE;
      this._first = Math.floor(place / PAGE) * PAGE;
    }
  }

  private _rowElement(trialId: number): HTMLElement | null {
    return this._body.querySelector<HTMLElement>(`[data-trial="${trialId}"]`);
  }

  private _choose(trialId: number | null): void {
    this._focus.choose(trialId === this._focus.chosen ? null : trialId);
  }

  private _onClick(event: Event): void {
    const id = rowIdOf(event.target);
    if (id !== null) {
      this._rowElement(id)?.focus();
      this._choose(id);
    }
  }

  private _onKey(event: KeyboardEvent): void {
    const row = focusedIn(this._body)?.closest('tr');
    const next: Record<string, Element | null | undefined> = {
      ArrowDown: row?.nextElementSibling,
      ArrowUp: row?.previousElementSibling,
      Home: this._body.firstElementChild,
      End: this._body.lastElementChild
    };
    if (event.key in next) {
      (next[event.key] as HTMLElement | null | undefined)?.focus();
      this._focus.point(rowIdOf(focusedIn(this._body)));
    } else if (event.key === 'Enter' || event.key === ' ') {
      this._choose(rowIdOf(row ?? null));
    } else if (event.key === 'Escape' && this._focus.chosen !== null) {
      this._focus.choose(null);
    } else {
      return;
    }
    event.preventDefault();
    event.stopPropagation(); // notebooks move between cells with these keys
  }

  private readonly _head = h('thead');
  private readonly _body = h('tbody');
  private readonly _foot = h('div.det-line.det-quiet');
  private readonly _drawHead = rebuilder(
    this._head,
    ({ headings, sort }: { headings: IHeading[]; sort: ISort }) => [
      h('tr', {}, ...headings.map(heading => this._heading(heading, sort)))
    ]
  );
  private readonly _rows = new Map<number, IShownRow>();
  private readonly _drawFoot = rebuilder(this._foot, (page: IPage) => this._footParts(page));
  private _search: ISearchState | undefined;
  private _sort: ISort = { key: 'best', isReversed: false };
  private _order = new Map<number, number>();
  private readonly _held = new Set<'focus' | 'pointer'>();
  /** Whether the user has changed order or page. */
  private _isMoved = false;
  private _first = 0;
  private _size = FEW;
  private _brushes: Brushes = new Map();
  private _shownChosen: number | null = null;
}

function isDescending(sort: ISort, search: ISearchState): boolean {
  const isMetric = sort.key === 'best' || sort.key === 'latest';
  return (isMetric && !search.smaller_is_better) !== sort.isReversed;
}

const STATE_COLUMN = 1;

export interface IShownRow {
  readonly node: HTMLElement;
  /** Update its cells if they have changed. */
  draw: (row: ITableRow) => void;
}

export function newRow(id: number): IShownRow {
  const node = h('tr', { 'data-trial': id, tabindex: -1, 'aria-selected': 'false' });
  const draw = rebuilder(node, ({ status, cells }: ITableRow) =>
    cells.map(({ text, isNumber }, i) =>
      h(
        isNumber ? 'td.det-number' : 'td',
        {},
        i === STATE_COLUMN
          ? h('span.det-state', { 'data-status': status }, icon(status), text)
          : text
      )
    )
  );
  return { node, draw };
}

/** The trial's id of the row that contains an element. */
export function rowIdOf(target: EventTarget | null): number | null {
  const row = target instanceof Element ? target.closest('[data-trial]') : null;
  return row === null ? null : Number(row.getAttribute('data-trial'));
}
