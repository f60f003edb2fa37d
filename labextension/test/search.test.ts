import { describe, expect, it } from 'vitest';

import type { ITrialRow } from '../src/model/state.js';
import {
  describe as describeRow,
  matches,
  ranks,
  rungText,
  sortRows,
  type SortKey
} from '../src/model/rows.js';
import { tableHeadings, tableRow } from '../src/search/tablecells.js';
import { english } from '../src/model/trans.js';
import { row, search } from './samples.js';

const ids = (rows: readonly ITrialRow[]): number[] => rows.map(one => one.id);

describe('rows', () => {
  it('have ranks from the best to the worst; without a metric there is none', () => {
    const rows = [row({ id: 1, best: 0.2 }), row({ id: 2, best: null }), row({ id: 3, best: 0.9 })];
    expect([...ranks(search(rows))]).toEqual([
      [3, 0],
      [1, 1]
    ]);
  });
});

describe('sorting', () => {
  const rows = [
    row({ id: 1, best: 0.2, latest: 0.1, rungs: [], status: 'running', values: [0.1, 0] }),
    row({ id: 2, best: null, latest: 0.3, steps_completed: 90, num_slots: 2, values: [null, 1] }),
    row({ id: 3, best: 0.9, latest: null, rungs: [0.5, 0.9], status: 'error', values: [0.01, 1] }),
    row({ id: 4, best: 0.2, latest: 0.2, values: [0.001, 0] })
  ];
  const sorted = (key: SortKey, isReversed = false, smallerIsBetter = false): number[] =>
    ids(sortRows(rows, { key, isReversed }, smallerIsBetter));

  it('by a metric has the best first, and what is missing last both ways', () => {
    expect(sorted('best')).toEqual([3, 1, 4, 2]);
    expect(sorted('best', true)).toEqual([1, 4, 3, 2]);
    expect(sorted('best', false, true)).toEqual([1, 4, 3, 2]);
    expect(sorted('latest')).toEqual([2, 4, 1, 3]);
  });

  it('by anything else is ascending', () => {
    expect(sorted('trial', true)).toEqual([4, 3, 2, 1]);
    expect(sorted('state')).toEqual([1, 2, 4, 3]);
    expect(sorted('rung')).toEqual([2, 4, 3, 1]);
    expect(sorted('steps')).toEqual([1, 3, 4, 2]);
    expect(sorted('slots', true)).toEqual([2, 1, 3, 4]);
  });

  it('by a hyperparameter is by its value', () => {
    expect(sorted(0)).toEqual([4, 3, 1, 2]);
    expect(sorted(1, true)).toEqual([2, 3, 1, 4]);
  });

  it('leaves the rows that it was given alone', () => {
    expect(ids(rows)).toEqual([1, 2, 3, 4]);
  });
});

describe('filters', () => {
  it('keep what lies within all of them', () => {
    const one = row({ values: [0.01, 1], best: 0.8 });
    expect(matches(one, new Map())).toBe(true);
    expect(matches(one, new Map([[0, [0.001, 0.1]]]))).toBe(true);
    expect(
      matches(
        one,
        new Map([
          [0, [0.001, 0.1]],
          [1, [-0.5, 0.5]]
        ])
      )
    ).toBe(false);
  });

  it('after the last hyperparameter are for the metric', () => {
    expect(matches(row({ best: 0.8 }), new Map([[2, [0.7, 0.9]]]))).toBe(true);
    expect(matches(row({ best: null }), new Map([[2, [0, 1]]]))).toBe(false);
  });

  it('leave out trials that have no such value', () => {
    expect(matches(row({ values: [null, 0] }), new Map([[0, [0, 1]]]))).toBe(false);
  });
});

describe('words', () => {
  const rows = [row({ id: 4, best: 0.9812, values: [0.005, 1] }), row({ id: 5, best: null })];

  it('describe a trial with its hyperparameters', () => {
    expect(describeRow(rows[0] as ITrialRow, search(rows), english)).toBe(
      'trial 4 · resting · accuracy 0.9812 · lr 0.005000 · optimizer.name adam'
    );
  });

  it('name the highest rung that was reached', () => {
    expect(rungText(row({ rungs: [1, 2] }), search([]))).toBe('4 epochs');
    expect(rungText(row({ rungs: [] }), search([]))).toBe('–');
  });
});

describe('cells', () => {
  it('stand under their headings', () => {
    const one = row({ id: 7, num_slots: 2, values: [0.005, 1] });
    const shown = search([one]);
    const headings = tableHeadings(shown, english).map(heading => heading.text);
    const cells = tableRow(one, shown, english).cells.map(cell => cell.text);
    expect(headings.map((heading, i) => [heading, cells[i]])).toEqual([
      ['Trial', '7'],
      ['State', 'Resting'],
      ['Rung', '1 epoch'],
      ['Best accuracy', '0.5000'],
      ['Latest', '0.5000'],
      ['Steps', '22'],
      ['lr', '0.005000'],
      ['optimizer.name', 'adam'],
      ['Slots', '2']
    ]);
  });

  it('have no rung where trials are not compared on the way', () => {
    const flat = search([row()], { brackets: [] });
    const headings = tableHeadings(flat, english).map(heading => heading.text);
    expect(headings).not.toContain('Rung');
    expect(tableRow(row(), flat, english).cells).toHaveLength(headings.length);
  });

  it('say that a missing metric counts as the worst', () => {
    const texts = (one: ITrialRow): string[] =>
      tableRow(one, search([]), english).cells.map(cell => cell.text);
    expect(texts(row({ rungs: [null], best: null }))).toContain('none: worst');
    expect(texts(row({ rungs: [], best: null }))).not.toContain('none: worst');
  });
});
