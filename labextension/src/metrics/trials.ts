/** Whose metrics are drawn; pure. */
import type { IViewState } from '../model/state.js';

const MAX_TRIALS = 8;

/** The trials that the reader has named; else those that the curves of the overview name. */
export function trialsOf(
  { search, trials, charts }: Pick<IViewState, 'search' | 'trials' | 'charts'>,
  text: string
): number[] {
  const named = idsIn(text);
  if (named.length > 0) {
    return named;
  }
  const drawn = charts.flatMap(chart =>
    chart.series.filter(one => !one.is_faint).map(one => one.trial_id)
  );
  const known = search === null ? trials.map(trial => trial.id) : drawn;
  return [...new Set(known)].slice(0, MAX_TRIALS);
}

/** The numbers in a text, each once. */
export function idsIn(text: string): number[] {
  const numbers = (text.match(/\d+/g) ?? []).map(Number).filter(Number.isSafeInteger);
  return [...new Set(numbers)].slice(0, MAX_TRIALS);
}
