/**
 * The state that a view is drawn from, and what follows from it; knows no DOM and no transport.
 *
 * The interfaces mirror det_jupyter/notebook/view/model.py, where each field is explained;
 * a test compares the two.
 */

export type Status =
  | 'queued'
  | 'starting'
  | 'running'
  | 'pausing'
  | 'paused'
  | 'stopping'
  | 'completed'
  | 'canceled'
  | 'failed';

export type Verb = 'pause' | 'activate' | 'kill';

export interface IAction {
  verb: Verb;
  label: string;
  enabled: boolean;
  why: string;
}

export interface ISeries {
  label: string;
  kind: 'line' | 'points';
  look: number;
  steps: number[];
  values: (number | null)[];
  last: number | null;
  lowest: number | null;
  highest: number | null;
}

export interface IChart {
  title: string;
  series: ISeries[];
  hidden: number;
}

export interface IRank {
  rank: number;
  pid: number;
  slot: string;
  device: string;
  status: Status;
}

export interface IFailure {
  rank: number | null;
  exit_code: number | null;
  error: string;
  where: string;
  traceback: string;
  again: boolean;
}

export interface ITrial {
  id: number;
  status: Status;
  status_word: string;
  progress: number;
  steps_completed: number;
  restarts: number;
  hparams: string;
  waiting_for: string;
  backend: string;
  launch_note: string;
  first_step_s: number | null;
  ranks: IRank[];
  failure: IFailure | null;
}

export interface ICheckpoints {
  count: number;
  size_bytes: number;
  latest_step: number | null;
  metric: string;
  best_metric: number | null;
  best_step: number | null;
}

export interface ICaptured {
  name: string;
  cell: string;
  type: string;
  size_bytes: number;
}

export interface IViewState {
  id: number;
  name: string;
  status: Status;
  status_word: string;
  as_of: number;
  created_at: number;
  ended_at: number | null;
  progress: number;
  eta_s: number | null;
  steps_per_epoch: number | null;
  message: string;
  actions: IAction[];
  charts: IChart[];
  more_metrics: string[];
  trials: ITrial[];
  num_trials: number;
  checkpoints: ICheckpoints;
  captured: ICaptured[];
  num_captured: number;
  notices: string[];
}

const ENDED: ReadonlySet<Status> = new Set<Status>(['completed', 'canceled', 'failed']);

export function isEnded(status: Status): boolean {
  return ENDED.has(status);
}

/** After this long without news the view stops pretending that it knows. */
export const STALE_AFTER_S = 30;
/** A first state older than this comes out of a saved notebook. */
const SAVED_AFTER_S = 120;

/**
 * What time it is where the states are made.
 *
 * States say when they were true, by the kernel's clock; between two of them the browser's clock
 * counts on. Clocks of two machines may differ, so only differences of the browser's are used.
 */
export class Clock {
  /** Note a state that arrived when the browser's clock said `now`. */
  accept(asOf: number, now: number): void {
    const isFirst = this._asOf === undefined;
    this._isSaved = isFirst
      ? Math.abs(now - asOf) > SAVED_AFTER_S
      : this._isSaved && asOf === this._asOf;
    if (asOf !== this._asOf) {
      this._acceptedAt = now;
    }
    this._asOf = asOf;
  }

  /** Seconds since the last news. */
  silence(now: number): number {
    return Math.max(0, now - this._acceptedAt);
  }

  isStale(now: number): boolean {
    return this._isSaved || this.silence(now) > STALE_AFTER_S;
  }

  /** The kernel's time, which stands still once there is no news. */
  time(now: number): number {
    return (this._asOf ?? 0) + (this.isStale(now) ? 0 : this.silence(now));
  }

  private _asOf: number | undefined;
  private _acceptedAt = 0;
  private _isSaved = false;
}

/** The furthest step of any trial. */
export function stepsCompleted(state: IViewState): number {
  return Math.max(0, ...state.trials.map(trial => trial.steps_completed));
}

/** A series beside others: `undefined` where it has no point, `null` where that is not finite. */
export type Column = (number | null | undefined)[];
/** Parallel columns: the steps, then one per series. */
export type Columns = [number[], ...Column[]];

/** Put curves with points at different steps side by side. */
export function toColumns(series: readonly ISeries[]): Columns {
  const steps = [...new Set(series.flatMap(one => one.steps))].sort((a, b) => a - b);
  const places = new Map(steps.map((step, place) => [step, place]));
  const columns = series.map(one => {
    const column = new Array<number | null | undefined>(steps.length).fill(undefined);
    one.steps.forEach((step, i) => {
      column[places.get(step) as number] = one.values[i] ?? null;
    });
    return column;
  });
  return [steps, ...columns];
}

/** Places of values with gaps to both sides, which no line would show. */
export function lonePlaces(column: Column): number[] {
  const places = column.flatMap((value, i) => (value === undefined ? [] : [i]));
  return places.filter(
    (place, i) =>
      column[place] !== null &&
      (column[places[i - 1] ?? -1] ?? null) === null &&
      (column[places[i + 1] ?? -1] ?? null) === null
  );
}

/**
 * Average a curve over its neighbourhood, about `span` steps to either side; gaps stay gaps.
 *
 * Points of a sampled curve are not evenly spaced, so each counts by its distance in steps. The
 * past and the future are averaged alike: leaning on the past alone would draw the curve late.
 */
export function smoothed(one: ISeries, span: number): (number | null)[] {
  const past = decayingSums(one.values, one.steps, span);
  const future = decayingSums(one.values.toReversed(), one.steps.toReversed(), span).reverse();
  return one.values.map((value, i) => {
    if (value === null) {
      return null;
    }
    const [pastSum, pastWeight] = past[i] as [number, number];
    const [futureSum, futureWeight] = future[i] as [number, number];
    return (pastSum + futureSum - value) / (pastWeight + futureWeight - 1);
  });
}

/** At each point: the sum of the values so far, and of their weights, which fade with distance. */
function decayingSums(
  values: readonly (number | null)[],
  steps: readonly number[],
  span: number
): [number, number][] {
  let sum = 0;
  let weight = 0;
  return values.map((value, i) => {
    const keep = i === 0 ? 0 : Math.exp(-Math.abs(at(steps, i) - at(steps, i - 1)) / span);
    sum = sum * keep + (value ?? 0);
    weight = weight * keep + (value === null ? 0 : 1);
    return [sum, weight];
  });
}

function at(steps: readonly number[], place: number): number {
  return steps[place] as number;
}

/** Below this many points a curve is read point by point. */
const SMOOTH_FROM = 50;

/** How many steps to smooth over; 0 for curves that need none. */
export function smoothingSpan(one: ISeries): number {
  if (one.kind !== 'line' || one.steps.length < SMOOTH_FROM) {
    return 0;
  }
  return ((one.steps.at(-1) as number) - (one.steps[0] as number)) / 60;
}

/** The place of the newest point at or before `step`; -1 if the curve begins later. */
export function placeAt(one: ISeries, step: number): number {
  let low = 0;
  let high = one.steps.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((one.steps[middle] as number) <= step) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low - 1;
}

/** At most `limit` steps of a chart for reading as a table, the first and the last among them. */
export function tableSteps(chart: IChart, limit: number): number[] {
  const sparse = chart.series.filter(one => one.kind === 'points');
  const [steps] = toColumns(sparse.length > 0 ? sparse : chart.series);
  if (steps.length <= limit) {
    return steps;
  }
  const stride = (steps.length - 1) / (limit - 1);
  return Array.from({ length: limit }, (_, i) => steps[Math.round(i * stride)] as number);
}
