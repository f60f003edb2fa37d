/**
 * A windowed list: only visible rows are in the page. ARIA pattern of a grid: the list has the focus,
 * and `aria-activedescendant` is the active row. (JupyterLab's: docs/decisions/0022.)
 */
import { frames } from '../../dom/frames.js';
import { h, setAttribute } from '../../dom/dom.js';
import { SELECTED_ATTRIBUTE } from '../tokens.js';
import { Selection } from './keys.js';
import { listenToKeys } from './listkeys.js';
import { Heights } from './windowing.js';

/** The element of an item, which is reused for other items. */
export interface IRowView<T> {
  readonly node: HTMLElement;
  update(item: T): void;
}

export interface IListOptions<T> {
  label: string;
  keyOf: (item: T) => number;
  /** The height in pixels, in a list of this width. */
  heightOf: (item: T, width: number) => number;
  nameOf: (item: T) => string;
  create: () => IRowView<T>;
  onOpen: (item: T) => void;
  onRename?: (item: T) => void;
  /** If given, several rows can be selected; called when the selection has changed. */
  onSelect?: () => void;
  onScroll?: (scroll: number) => void;
}

let numLists = 0;

export class WindowedList<T> {
  readonly node: HTMLElement;
  readonly selection = new Selection();

  constructor(private readonly _options: IListOptions<T>) {
    this.isMultiple = _options.onSelect !== undefined;
    this.node = h('div.det-list', {
      role: 'grid',
      tabindex: 0,
      'aria-label': _options.label,
      'aria-multiselectable': this.isMultiple ? 'true' : null,
      'aria-rowcount': 0
    });
    this.node.append(this._all);
    this.node.addEventListener('scroll', () => this._onScroll(), { passive: true });
    this.node.addEventListener('click', event => this._onClick(event));
    this.node.addEventListener('contextmenu', event => this._onMenu(event));
    this.node.addEventListener('focusin', event => this._onFocus(event));
    listenToKeys(this);
    if (typeof ResizeObserver !== 'undefined') {
      this._resized = new ResizeObserver(() => this._onResize());
      this._resized.observe(this.node);
    }
  }

  dispose(): void {
    this._resized?.disconnect();
    frames.drop(this._draw);
  }

  readonly isMultiple: boolean;

  get count(): number {
    return this._items.length;
  }

  /** The height of all rows, in pixels. */
  get height(): number {
    return this._heights.total;
  }

  /** Scroll to this offset when the rows have been set. */
  scrollTo(wanted: number): void {
    this._wanted = wanted;
    this.draw();
  }

  /**
   * Show these items. The first visible row stays in place, whatever was inserted above it. The items
   * may be the former array, changed in place.
   */
  setItems(items: readonly T[]): void {
    const { keyOf, heightOf } = this._options;
    this._items = items;
    this._heights.set(items.map(item => heightOf(item, this._width)));
    if (this._top !== null && this._wanted === null) {
      const { key, offset } = this._top;
      const place = items.findIndex(item => keyOf(item) === key);
      this._wanted = place < 0 ? null : this._heights.topOf(place) + offset;
    }
    if (this.activePlace < 0) {
      this._active = null;
    }
    this._noteSelection();
    setAttribute(this.node, 'aria-rowcount', items.length);
    this._all.style.height = `${this._heights.total}px`;
    this.draw();
  }

  /** Draw the visible rows in the next frame. */
  draw(): void {
    frames.ask(this._draw);
  }

  /** The item whose row contains this element. */
  itemOf(element: EventTarget | null): T | undefined {
    const row = element instanceof Element ? element.closest<HTMLElement>('[data-key]') : null;
    const place = row === null ? -1 : this._placeOf(Number(row.dataset.key));
    return this._items[place];
  }

  /** The selected items, in the order of the list. */
  get selected(): T[] {
    const { keys } = this.selection;
    const { keyOf } = this._options;
    return keys.size === 0 ? [] : this._items.filter(item => keys.has(keyOf(item)));
  }

  /** The items dragged from an element: its row, or all selected rows if it is one of them. */
  dragged(element: EventTarget | null): { experimentIds: number[]; name: string } | null {
    const item = isControl(element) ? undefined : this.itemOf(element);
    if (item === undefined) {
      return null;
    }
    const { keyOf, nameOf } = this._options;
    const isSelected = this.selection.keys.has(keyOf(item));
    const items = isSelected ? this.selected : [item];
    return { experimentIds: items.map(keyOf), name: nameOf(item) };
  }

  /** Change the selection. */
  select(change: (selection: Selection) => void): void {
    change(this.selection);
    this._noteSelection();
    this._options.onSelect?.();
    this.draw();
  }

  get activePlace(): number {
    return this._active === null ? -1 : this._placeOf(this._active);
  }

  /** The element of the active row; undefined without one. */
  get activeRow(): HTMLElement | undefined {
    return this._active === null ? undefined : this._drawn.get(this._active)?.node;
  }

  /** Make a row the active one and scroll to it. */
  activate(place: number): void {
    const item = this._items[place];
    if (item !== undefined) {
      this._active = this._options.keyOf(item);
      const { scrollTop, clientHeight } = this.node;
      if (clientHeight > 0) {
        this._wanted = this._heights.scrollTo(place, scrollTop, clientHeight);
      }
      this.draw();
    }
  }

  openActive(): void {
    const item = this._items[this.activePlace];
    if (item !== undefined) {
      this._options.onOpen(item);
    }
  }

  /** Returns whether the active row can be renamed. */
  renameActive(): boolean {
    const item = this._items[this.activePlace];
    if (item === undefined || this._options.onRename === undefined) {
      return false;
    }
    this._options.onRename(item);
    return true;
  }

  keyAt(place: number): number {
    return this._options.keyOf(this._items[place] as T);
  }

  nameAt(place: number): string {
    return this._options.nameOf(this._items[place] as T);
  }

  get keys(): number[] {
    return this._items.map(this._options.keyOf);
  }

  get firstSeen(): number {
    return this._heights.at(this.node.scrollTop);
  }

  /** The number of visible rows. */
  get pageSize(): number {
    return this._heights.at(this.node.scrollTop + this.node.clientHeight) - this.firstSeen;
  }

  private readonly _draw = (): void => {
    const height = this.node.clientHeight;
    if (height === 0) {
      return; // the list is folded
    }
    if (this._wanted !== null && this._heights.total > 0) {
      this.node.scrollTop = this._wanted;
      this._wanted = null;
    }
    const { first, end } = this._heights.range(this.node.scrollTop, height);
    this._noteTop();
    const places = Array.from({ length: end - first }, (_, i) => first + i);
    const active = this.activePlace;
    if (active >= 0 && (active < first || active >= end)) {
      places.push(active); // `aria-activedescendant` must refer to an element in the page
    }
    this._drawRows(places, active);
  };

  /** Stores the selected keys in an attribute, for the context menu. */
  private _noteSelection(): void {
    const keys = this.selected.map(this._options.keyOf);
    setAttribute(this.node, SELECTED_ATTRIBUTE, keys.join(' ') || null);
  }

  private _noteTop(): void {
    const scroll = this.node.scrollTop;
    const place = this._heights.at(scroll);
    const item = this._items[place];
    this._top =
      scroll === 0 || item === undefined
        ? null
        : { key: this._options.keyOf(item), offset: scroll - this._heights.topOf(place) };
  }

  private _drawRows(places: readonly number[], active: number): void {
    const { create } = this._options;
    const wanted = new Set(places.map(place => this.keyAt(place)));
    const free = [...this._drawn].filter(([key]) => !wanted.has(key));
    for (const place of places) {
      const key = this.keyAt(place);
      let view = this._drawn.get(key);
      if (view === undefined) {
        const [old, again] = free.pop() ?? [null, null];
        view = again ?? create();
        if (old !== null) {
          this._drawn.delete(old);
        } else {
          this._all.append(view.node);
        }
        this._drawn.set(key, view);
      }
      this._drawRow(view, place, place === active);
    }
    for (const [key, view] of free) {
      this._drawn.delete(key);
      view.node.remove();
    }
    const id = active < 0 ? null : this._idOf(this.keyAt(active));
    setAttribute(this.node, 'aria-activedescendant', id);
  }

  private _drawRow(view: IRowView<T>, place: number, isActive: boolean): void {
    const { node } = view;
    const item = this._items[place] as T;
    const key = this.keyAt(place);
    view.update(item);
    setAttribute(node, 'data-key', key);
    setAttribute(node, 'id', this._idOf(key));
    setAttribute(node, 'aria-rowindex', place + 1);
    setAttribute(node, 'data-active', isActive);
    if (this.isMultiple) {
      setAttribute(node, 'aria-selected', this.selection.keys.has(key) ? 'true' : 'false');
    }
    const top = this._heights.topOf(place);
    const height = this._heights.topOf(place + 1) - top;
    setAttribute(node, 'style', `transform:translateY(${top}px);height:${height}px`);
  }

  private _idOf(key: number): string {
    return `${this._prefix}-${key}`;
  }

  private _placeOf(key: number): number {
    return this._items.findIndex(item => this._options.keyOf(item) === key);
  }

  private _onResize(): void {
    const { clientWidth } = this.node;
    if (clientWidth !== this._width && clientWidth > 0) {
      this._width = clientWidth;
      this.setItems(this._items);
    }
    this.draw();
  }

  private _onScroll(): void {
    this.draw();
    this._options.onScroll?.(this.node.scrollTop);
  }

  /** Makes the row of a focused button the active one, whose element is not reused. */
  private _onFocus(event: FocusEvent): void {
    const item = this.itemOf(event.target);
    if (item !== undefined) {
      this._active = this._options.keyOf(item);
      this.draw();
    }
  }

  private _onClick(event: MouseEvent): void {
    const item = this.itemOf(event.target);
    if (item === undefined || event.defaultPrevented || isControl(event.target)) {
      return;
    }
    const key = this._options.keyOf(item);
    this._active = key;
    if (this.isMultiple && (event.ctrlKey || event.metaKey)) {
      this.select(selection => selection.toggle(key));
    } else if (this.isMultiple && event.shiftKey) {
      this.select(selection => selection.extend(key, this.keys));
    } else {
      this.draw();
      this._options.onOpen(item);
    }
  }

  /** Redirects the menu key to the active row. */
  private _onMenu(event: MouseEvent): void {
    const item = this.itemOf(event.target);
    const row = this.activeRow;
    if (item !== undefined) {
      this._active = this._options.keyOf(item);
      this.draw();
    } else if (row !== undefined && event.target === this.node) {
      event.preventDefault();
      event.stopPropagation();
      const { left, bottom } = row.getBoundingClientRect();
      const [clientX, clientY] = [left + 24, bottom - 4];
      const again = { bubbles: true, cancelable: true, clientX, clientY };
      row.dispatchEvent(new MouseEvent('contextmenu', again));
    }
  }

  private readonly _all = h('div.det-list-all', { role: 'rowgroup' });
  private readonly _heights = new Heights();
  private readonly _drawn = new Map<number, IRowView<T>>();
  private readonly _prefix = `det-list-${(numLists += 1)}`;
  private readonly _resized: ResizeObserver | undefined;
  private _items: readonly T[] = [];
  private _width = 300;
  private _active: number | null = null;
  private _top: { key: number; offset: number } | null = null;
  private _wanted: number | null = null;
}

function isControl(target: EventTarget | null): boolean {
  return target instanceof Element && target.closest('button, input, a') !== null;
}
