/** A row of the table of trials, as it is on the page. */
import { h, rebuilder } from '../dom/dom.js';
import { icon } from '../dom/icons.js';
import type { ITableRow } from './tablecells.js';

const STATE_COLUMN = 1;

export interface IShownRow {
  readonly node: HTMLElement;
  /** Draw its cells if they have changed. */
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

/** The trial of the row that an element is in. */
export function rowIdOf(target: EventTarget | null): number | null {
  const row = target instanceof Element ? target.closest('[data-trial]') : null;
  return row === null ? null : Number(row.getAttribute('data-trial'));
}
