/** Curves and trials of the metrics tab, from answers or from the view's state; pure. */
import type { IChart, IViewState } from '../model/state.js';
import type { ISeriesPage } from '../model/answers.js';

/** One metric of one trial and group. */
export interface ITrace {
  trialId: number;
  /** Training, validation, or the user's group. */
  group: string;
  /** Whether it is reported at each batch. */
  isLine: boolean;
  /** Batches, or seconds since the trial began, as requested. */
  x: number[];
  mid: (number | null)[];
  low?: number[];
  high?: number[];
}

const VALIDATION_PREFIXES = ['validation_', 'val_'];

/** The metrics that can be drawn, in the order of the view. */
export function metricNames(
  state: Pick<IViewState, 'charts' | 'more_metrics' | 'search'>
): string[] {
  const titles = [...state.charts.map(chart => chart.title), ...state.more_metrics];
  // In a search, titles of metrics that several groups have contain the group.
  const names = state.search === null ? titles : titles.map(one => one.replace(/ \(\w+\)$/, ''));
  return [...new Set(names)];
}

/** The batches per epoch, if known. */
export function epochOf({
  steps_per_epoch,
  charts
}: Pick<IViewState, 'steps_per_epoch' | 'charts'>): number | null {
  const known = charts.flatMap(chart => chart.series.map(one => one.steps_per_epoch));
  return steps_per_epoch ?? known.find(one => one !== null) ?? null;
}

/** The names under which a chart's metric may have been reported, including validation metrics. */
export function reportedNames(name: string, all: readonly string[]): string[] {
  const prefixed = VALIDATION_PREFIXES.map(prefix => prefix + name);
  return [name, ...prefixed.filter(one => !all.includes(one))];
}

/** The traces of a metric in a page, without averages of values that are there per batch. */
export function tracesOf(
  page: ISeriesPage,
  trialId: number,
  names: readonly string[],
  isTime: boolean
): ITrace[] {
  const found = page.series.filter(one => names.includes(one.name) && one.x.length > 0);
  const byBatch = new Set(found.filter(one => one.source === 'batches').map(one => one.name));
  const origin = isTime ? (page.began_at ?? 0) : 0;
  return found
    .filter(one => one.source !== 'training' || !byBatch.has(one.name))
    .map(one => ({
      trialId,
      group: one.source === 'batches' ? 'training' : one.source,
      isLine: one.source === 'batches',
      x: origin === 0 ? one.x : one.x.map(x => x - origin),
      mid: one.mid,
      low: one.low,
      high: one.high
    }));
}

/** The traces of a metric in the view's state. */
export function tracesInState(
  charts: readonly IChart[],
  name: string,
  trialIds: readonly number[],
  isTime: boolean
): ITrace[] {
  const own = charts.filter(({ title }) => title.replace(/ \(\w+\)$/, '') === name);
  return own.flatMap(({ title, series }) =>
    series
      .filter(one => trialIds.includes(one.trial_id) && one.steps.length > 0)
      .map(one => ({
        trialId: one.trial_id,
        group: /\((\w+)\)$/.exec(title)?.[1] ?? (one.label.startsWith('trial') ? '' : one.label),
        isLine: one.kind === 'line',
        x: isTime ? one.seconds : one.steps,
        mid: one.values
      }))
  );
}

/** The seconds from a trial's first report to a batch, if a curve has that. */
export function secondsAt(
  charts: readonly IChart[],
  trialId: number,
  steps: number
): number | null {
  const curves = charts.flatMap(chart => chart.series.filter(one => one.trial_id === trialId));
  const longest = curves.reduce<(typeof curves)[number] | undefined>(
    (most, one) => (one.steps.length > (most?.steps.length ?? 0) ? one : most),
    undefined
  );
  const place = longest?.steps.findIndex(step => step >= steps) ?? -1;
  return longest?.seconds[place] ?? null;
}

const MAX_TRIALS = 8;

/** The trials in the user's text; else those with a coloured curve in the overview. */
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
