/** Ranks, sorts and filters the trials of a search; pure. */
import { formatNumber } from './format.js';
import type { ITrialRow, ISearchState } from './state.js';
import { axisText } from './scales.js';
import type { ITrans } from './trans.js';

/** The sort key of the table: a column, or the index of a hyperparameter's axis. */
export type SortKey = 'trial' | 'state' | 'rung' | 'best' | 'latest' | 'steps' | 'slots' | number;

export interface ISort {
  key: SortKey;
  /** Not reversed, metrics are sorted best first. */
  isReversed: boolean;
}

/** Ranges of values by axis index; the index after the last axis is the metric's. */
export type Brushes = ReadonlyMap<number, readonly [number, number]>;

/** Rows sorted by metric, the best first, those without one last. */
export function rankRows(search: ISearchState): ITrialRow[] {
  return sortRows(search.rows, { key: 'best', isReversed: false }, search.smaller_is_better);
}

/** The rank of each trial with a metric, from 0 for the best to 1. */
export function ranks(search: ISearchState): Map<number, number> {
  const ranked = rankRows(search).filter(row => row.best !== null);
  return new Map(ranked.map((row, i) => [row.id, i / Math.max(1, ranked.length - 1)]));
}

const STATE_ORDER = [
  'running',
  'starting',
  'pausing',
  'stopping',
  'queued',
  'resting',
  'paused',
  'completed',
  'stopped',
  'error',
  'canceled'
];

export function sortRows(
  rows: readonly ITrialRow[],
  sort: ISort,
  smallerIsBetter: boolean
): ITrialRow[] {
  const isMetric = sort.key === 'best' || sort.key === 'latest';
  const sign = (isMetric && !smallerIsBetter ? -1 : 1) * (sort.isReversed ? -1 : 1);
  const keyed = rows.map(row => ({ row, key: keyOf(row, sort.key) }));
  keyed.sort((a, b) => {
    if (a.key === null || b.key === null) {
      // Missing values are last in both orders.
      return Number(a.key === null) - Number(b.key === null) || a.row.id - b.row.id;
    }
    return sign * (a.key - b.key) || a.row.id - b.row.id;
  });
  return keyed.map(({ row }) => row);
}

function keyOf(row: ITrialRow, key: SortKey): number | null {
  switch (key) {
    case 'trial':
      return row.id;
    case 'state':
      return STATE_ORDER.indexOf(row.status);
    case 'rung':
      return row.rungs.length === 0 ? null : row.rungs.length;
    case 'best':
      return row.best;
    case 'latest':
      return row.latest;
    case 'steps':
      return row.steps_completed;
    case 'slots':
      return row.num_slots;
    default:
      return row.values[key] ?? null;
  }
}

/** Whether a trial is within all ranges. */
export function matches(row: ITrialRow, brushes: Brushes): boolean {
  return [...brushes].every(([axis, [low, high]]) => {
    const value = axis < row.values.length ? row.values[axis] : row.best;
    return value !== null && value !== undefined && value >= low && value <= high;
  });
}

/** Describes a trial in one line, for tooltips and screen readers. */
export function describe(row: ITrialRow, search: ISearchState, trans: ITrans): string {
  return [
    trans.__('trial %1', row.id),
    row.status_word.toLowerCase(),
    row.best === null
      ? trans.__('no %1 yet', search.metric)
      : `${search.metric} ${formatNumber(row.best)}`,
    ...search.axes.map((axis, i) => `${axis.name} ${axisText(axis, row.values[i] ?? null)}`)
  ].join(' · ');
}

/** The label of the highest rung that a trial has reached. */
export function rungText(row: ITrialRow, search: ISearchState): string {
  const rung = search.brackets[row.bracket ?? 0]?.rungs[row.rungs.length - 1];
  return rung?.label ?? '–';
}
