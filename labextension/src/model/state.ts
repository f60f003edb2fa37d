/**
 * The state that a view is drawn from, and what follows from it; knows no DOM and no transport.
 *
 * The interfaces mirror det_jupyter/view/model/experiment.py, where each field is explained;
 * a test compares the two.
 */

import type { ICluster } from './cluster.js';

export type Status =
  | 'queued'
  | 'starting'
  | 'running'
  | 'pausing'
  | 'paused'
  | 'resting'
  | 'stopping'
  | 'completed'
  | 'stopped'
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
  trial_id: number;
  label: string;
  kind: 'line' | 'points';
  look: number;
  is_faint: boolean;
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
  makes_room: string;
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

export interface IAxis {
  name: string;
  scale: 'linear' | 'log' | 'category';
  is_whole: boolean;
  low: number;
  high: number;
  labels: string[];
}

export interface IRow {
  id: number;
  status: Status;
  status_word: string;
  bracket: number | null;
  rungs: (number | null)[];
  aim: number;
  best: number | null;
  latest: number | null;
  steps_completed: number;
  num_slots: number;
  values: (number | null)[];
}

export interface IRung {
  label: string;
  short_label: string;
  num_results: number;
  num_promoted: number;
}

export interface IBracket {
  rungs: IRung[];
  num_created: number;
  max_trials: number;
}

export interface IImprovement {
  after_s: number;
  value: number;
  trial_id: number;
}

export interface IRemark {
  trial_ids: number[];
  is_failure: boolean;
  text: string;
}

export interface ICounts {
  done: number;
  running: number;
  resting: number;
  waiting: number;
  failed: number;
  canceled: number;
}

export interface IChosen {
  trial: ITrial;
  charts: IChart[];
  more_metrics: string[];
}

export interface ISearch {
  searcher: string;
  metric: string;
  smaller_is_better: boolean;
  max_trials: number;
  divisor: number | null;
  counts: ICounts;
  axes: IAxis[];
  brackets: IBracket[];
  rows: IRow[];
  improvements: IImprovement[];
  waiting_for: string;
  remarks: IRemark[];
  num_more_remarks: number;
  chosen: IChosen | null;
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
  search: ISearch | null;
  cluster: ICluster | null;
  checkpoints: ICheckpoints;
  captured: ICaptured[];
  num_captured: number;
  notices: string[];
}

const ENDED: ReadonlySet<Status> = new Set<Status>(['completed', 'stopped', 'canceled', 'failed']);

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
