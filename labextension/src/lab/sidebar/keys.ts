/** Keyboard navigation and selection in a list; independent of the DOM. */

const TYPED_MS = 700;

/** The index to which a key moves; `null` for other keys. `page` is the number of visible rows. */
export function placeAfter(key: string, place: number, count: number, page: number): number | null {
  if (count === 0) {
    return null;
  }
  const moves: Record<string, number> = {
    ArrowDown: place + 1,
    ArrowUp: place < 0 ? count - 1 : place - 1,
    PageDown: place + Math.max(1, page - 1),
    PageUp: place - Math.max(1, page - 1),
    Home: 0,
    End: count - 1
  };
  const wanted = moves[key];
  return wanted === undefined ? null : Math.max(0, Math.min(count - 1, wanted));
}

/** Finds a row by the beginning of its name, as typed without a pause. */
export class TypeAhead {
  get isTyping(): boolean {
    return this._text !== '' && Date.now() - this._at < TYPED_MS;
  }

  /** The index of the next row whose name begins with the typed text; -1 if none does. */
  type(letter: string, names: (place: number) => string, place: number, count: number): number {
    this._text = this.isTyping ? this._text + letter.toLowerCase() : letter.toLowerCase();
    this._at = Date.now();
    // A repeated letter moves from row to row; further letters stay at a matching row.
    const isOne = this._text.replaceAll(this._text.charAt(0), '') === '';
    const [wanted, start] = isOne ? [this._text.charAt(0), place + 1] : [this._text, place];
    for (let i = 0; i < count; i += 1) {
      const found = (Math.max(0, start) + i) % count;
      if (names(found).toLowerCase().startsWith(wanted)) {
        return found;
      }
    }
    return -1;
  }

  private _text = '';
  private _at = 0;
}

/** The selected rows, by key; a range extends from the row that was selected last. */
export class Selection {
  readonly keys = new Set<number>();

  toggle(key: number): void {
    if (!this.keys.delete(key)) {
      this.keys.add(key);
    }
    this._anchor = key;
  }

  /** Select from the last selected row to this one, in this order of rows. */
  extend(key: number, order: readonly number[]): void {
    const to = order.indexOf(key);
    const from = this._anchor === null ? -1 : order.indexOf(this._anchor);
    if (from < 0) {
      this.keys.add(key);
      this._anchor = key;
      return;
    }
    order.slice(Math.min(from, to), Math.max(from, to) + 1).forEach(one => this.keys.add(one));
  }

  clear(): void {
    this.keys.clear();
    this._anchor = null;
  }

  /** Deselect rows that do not exist any more. Returns whether there were any. */
  keep(has: (key: number) => boolean): boolean {
    const gone = [...this.keys].filter(key => !has(key));
    gone.forEach(key => this.keys.delete(key));
    return gone.length > 0;
  }

  private _anchor: number | null = null;
}
