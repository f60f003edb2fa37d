/** Merges pages of series, and plans the queries for new points; pure. */
import type { ISeries, ISeriesAnswer, ISeriesPage, ISeriesQuery } from '../model/answers.js';

export interface ISeriesQuestion {
  trial_id: number;
  query: ISeriesQuery;
}

/** Fetches series; rejects with a message for the user. */
export type AskSeries = (question: ISeriesQuestion) => Promise<ISeriesAnswer>;

const COLUMNS_AGAIN = 3; // fetched again, as the newest columns may have been incomplete
const MAX_GROWTH = 2;

/** Replaces the points from `newer`'s first on. */
export function mergePages(kept: ISeriesPage, newer: ISeriesPage): ISeriesPage {
  const known = new Map(kept.series.map(one => [keyOf(one), one]));
  const fresh = newer.series.map(one => {
    const before = known.get(keyOf(one));
    known.delete(keyOf(one));
    return before === undefined ? one : joined(before, one);
  });
  const order = new Map(kept.series.map((one, i) => [keyOf(one), i]));
  const place = (one: ISeries): number => order.get(keyOf(one)) ?? order.size;
  const series = [...known.values(), ...fresh].sort((a, b) => place(a) - place(b));
  return { ...newer, series };
}

function joined(before: ISeries, after: ISeries): ISeries {
  const [from] = after.x;
  if (from === undefined) {
    return before.x.length > 0 ? before : after;
  }
  const found = before.x.findIndex(x => x >= from);
  const end = found < 0 ? before.x.length : found;
  const put = (name: 'x' | 'low' | 'mid' | 'high'): number[] =>
    before[name].slice(0, end).concat(after[name]);
  return { ...after, x: put('x'), low: put('low'), mid: put('mid'), high: put('high') };
}

function keyOf(one: ISeries): string {
  return `${one.source} ${one.name}`;
}

/** The query for new points; `null`: fetch all, as there are too many columns. */
export function tailOf(
  page: ISeriesPage,
  columns: number
): { since: number; columns: number } | null {
  const longest = page.series.reduce<number[]>(
    (most, one) => (one.x.length > most.length ? one.x : most),
    []
  );
  const [first, last] = [longest[0], longest.at(-1)];
  if (first === undefined || last === undefined || longest.length > MAX_GROWTH * columns) {
    return null;
  }
  const since = longest[Math.max(0, longest.length - COLUMNS_AGAIN)] as number;
  // So many columns that new ones are about as wide as existing ones, with a reserve.
  const width = (last - first) / Math.max(1, longest.length - 1);
  return { since, columns: width > 2 * page.interval_s ? 2 * COLUMNS_AGAIN : columns };
}

/** The range of a page's points. */
export function spanOf(page: ISeriesPage): [number, number] | null {
  let [low, high] = [Infinity, -Infinity];
  for (const { x } of page.series) {
    low = Math.min(low, x[0] ?? Infinity);
    high = Math.max(high, x.at(-1) ?? -Infinity);
  }
  return low <= high ? [low, high] : null;
}

/**
 * Fetches each group of names separately, as the size of an answer is limited, and merges the answers.
 */
export function inParts(ask: AskSeries, groups: readonly (readonly string[])[]): AskSeries {
  return async ({ query, ...which }) => {
    const pages: ISeriesPage[] = [];
    for (const names of groups) {
      const { page } = await ask({ ...which, query: { ...query, names: [...names] } });
      pages.push(page);
    }
    const series = pages.flatMap(page => page.series);
    return { page: { ...(pages.at(-1) as ISeriesPage), series } };
  };
}
