/** The section of finished experiments: search, order, labels, archive and comparison. */
import { h } from '../../dom/dom.js';
import type { IExperimentRow } from '../../model/state.js';
import type { ITrans } from '../../model/trans.js';
import type { IOperations } from './operations.js';
import { ENDED_HEIGHT, EndedRow, type IEndedOperations } from './endedrow.js';
import { Filters } from './endedfilters.js';
import { WindowedList } from './list.js';
import { SelectedBar } from './selectedbar.js';
import { acceptsOf, isActive, labelsOf, Listing, orderOf, type IQuery } from './listing.js';

type Rows = ReadonlyMap<number, IExperimentRow>;

export interface IEndedOptions {
  trans: ITrans;
  operations: IOperations;
  query: IQuery;
  mayWrite: () => boolean;
  onQuery: (query: IQuery) => void;
  onScroll: (scroll: number) => void;
}

export class EndedList {
  readonly node: HTMLElement;
  readonly list: WindowedList<IExperimentRow>;
  readonly filters: Filters;

  constructor(private readonly _options: IEndedOptions) {
    const { trans, operations, query, mayWrite, onScroll } = _options;
    this._listing = new Listing(acceptsOf(query), orderOf(query.sortBy));
    const rowOperations: IEndedOperations = {
      isSelected: ({ id }) => this.list.selection.keys.has(id),
      toggle: ({ id }) => this.list.select(selection => selection.toggle(id)),
      filterBy: label => this.filters.addLabel(label),
      editLabels: ({ id }) => operations.editLabels([id]),
      archive: ({ id, is_archived: isArchived }) => operations.archive([id], !isArchived)
    };
    this.list = new WindowedList<IExperimentRow>({
      label: trans.__('Finished experiments'),
      keyOf: ({ id }) => id,
      heightOf: () => ENDED_HEIGHT,
      nameOf: ({ name }) => name,
      create: () => new EndedRow(trans, rowOperations, mayWrite),
      onOpen: ({ id }) => operations.open(id),
      onRename: ({ id }) => void operations.rename(id),
      onSelect: () => this._count(),
      onScroll
    });
    const selected = (): number[] => this.list.selected.map(({ id }) => id);
    this._selected = new SelectedBar(trans, {
      compare: () => operations.compare(selected()),
      editLabels: () => operations.editLabels(selected()),
      archive: () => this._archive(),
      remove: () => operations.remove(selected()),
      clear: () => this.list.select(selection => selection.clear())
    });
    this.filters = new Filters(trans, query, this._selected.node, {
      onChange: changed => this._onQuery(changed),
      labels: () => labelsOf(this._rows.values())
    });
    this.node = h('div.det-ended', {}, this.filters.node, this.list.node);
  }

  /** The number of finished experiments, including archived ones if they are shown. */
  get count(): number {
    return this._all;
  }

  /** The height in pixels without scrolling. */
  get height(): number {
    return this.filters.node.offsetHeight + this.list.height;
  }

  /** 942, or: 12 of 942. */
  get countText(): string {
    const [some, all] = [this.numShown.toLocaleString(), this._all.toLocaleString()];
    return some === all ? all : this._options.trans.__('%1 of %2', some, all);
  }

  get numShown(): number {
    return this._listing.lines.length;
  }

  /** Update these lines; `null`: all. */
  update(ids: Iterable<number> | null, rows: Rows): void {
    this._rows = rows;
    let isMoved = true;
    if (ids === null) {
      this._listing.reset(rows);
    } else {
      isMoved = this._listing.change(ids, rows);
    }
    this._show(isMoved);
  }

  /** Restore filters and scroll position. */
  restore(query: IQuery, scroll: number): void {
    this.ask(query);
    this.list.scrollTo(scroll);
  }

  /** Apply another query, without calling `onQuery`. */
  ask(query: IQuery): void {
    this.filters.show(query);
    this._listing.ask(acceptsOf(query), orderOf(query.sortBy), this._rows);
    this.list.scrollTo(0);
    this._show(true);
  }

  private _onQuery(query: IQuery): void {
    this.ask(query);
    this._options.onQuery(query);
  }

  private _show(isMoved: boolean): void {
    if (isMoved) {
      this._all = this._countAll();
      this.list.selection.keep(id => this._listing.has(id));
      this.list.setItems(this._listing.lines);
      this._count();
    } else {
      this.list.draw();
    }
  }

  private _countAll(): number {
    let count = 0;
    for (const line of this._rows.values()) {
      const isShown = !line.is_archived || this.filters.query.showArchived;
      count += Number(isShown && !isActive(line));
    }
    return count;
  }

  private _count(): void {
    const hadFocus = this._selected.node.contains(document.activeElement);
    const isSelecting = this._selected.update(this.list.selected, this._options.mayWrite());
    this.filters.count(this.countText, isSelecting);
    if (hadFocus && !isSelecting) {
      this.list.node.focus(); // the focused button was hidden
    }
  }

  private _archive(): Promise<void> {
    const selected = this.list.selected;
    const isArchived = selected.every(line => line.is_archived);
    return this._options.operations.archive(
      selected.map(({ id }) => id),
      !isArchived
    );
  }

  private readonly _listing: Listing;
  private readonly _selected: SelectedBar;
  private _rows: Rows = new Map();
  private _all = 0;
}
