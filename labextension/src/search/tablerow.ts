/** One row of the table of trials; changes of it only what changed. */
import { h, setAttribute, setText } from '../dom/dom.js';
import { icon } from '../dom/icons.js';
import type { Status } from '../model/state.js';
import type { ITableRow } from './tablecells.js';

const STATE_COLUMN = 1;

export class TableRow {
  readonly node: HTMLElement;

  constructor(id: number) {
    this.node = h('tr', { 'data-trial': id, tabindex: -1, 'aria-selected': 'false' });
  }

  update({ status, cells }: ITableRow): void {
    while (this.node.children.length > cells.length) {
      this.node.lastElementChild?.remove();
    }
    cells.forEach(({ text, isNumber }, i) => {
      const cell = this.node.children[i] ?? this.node.appendChild(h('td'));
      setAttribute(cell, 'class', isNumber ? 'det-number' : null);
      if (i === STATE_COLUMN) {
        this._drawState(cell, status, text);
      } else {
        setText(cell, text);
      }
    });
  }

  private _drawState(cell: Element, status: Status, word: string): void {
    if (status !== this._status) {
      this._status = status;
      cell.replaceChildren(h('span.det-state', { 'data-status': status }, icon(status), word));
    }
  }

  private _status: Status | undefined;
}

/** The trial of the row that an element is in. */
export function rowIdOf(target: EventTarget | null): number | null {
  const row = target instanceof Element ? target.closest('[data-trial]') : null;
  return row === null ? null : Number(row.getAttribute('data-trial'));
}
