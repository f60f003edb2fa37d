import type { IChart, ISeries, ITrial, IViewState } from '../src/model.js';

export function series(changes: Partial<ISeries> = {}): ISeries {
  return {
    label: 'training',
    kind: 'line',
    look: 0,
    steps: [1, 2, 3],
    values: [3, 2, 1],
    last: 1,
    lowest: 1,
    highest: 3,
    ...changes
  };
}

export function chart(...all: ISeries[]): IChart {
  return { title: 'loss', series: all, hidden: 0 };
}

export function trial(changes: Partial<ITrial> = {}): ITrial {
  return {
    id: 1,
    status: 'running',
    status_word: 'Running',
    progress: 0.5,
    steps_completed: 44,
    restarts: 0,
    hparams: 'lr=0.05',
    waiting_for: '',
    backend: 'gloo',
    launch_note: '',
    first_step_s: 0.09,
    ranks: [
      { rank: 0, pid: 4200, slot: 'cpu 0', device: 'cpu', status: 'running' },
      { rank: 1, pid: 4201, slot: 'cpu 1', device: 'cpu', status: 'running' }
    ],
    failure: null,
    ...changes
  };
}

export function state(changes: Partial<IViewState> = {}): IViewState {
  return {
    id: 7,
    name: 'digits',
    status: 'running',
    status_word: 'Running',
    as_of: 1000,
    created_at: 958,
    ended_at: null,
    progress: 0.5,
    eta_s: 40,
    steps_per_epoch: 22,
    message: '',
    actions: [
      { verb: 'pause', label: 'Pause', enabled: true, why: 'Gives the slots back.' },
      { verb: 'activate', label: 'Activate', enabled: false, why: 'It is active already.' },
      { verb: 'kill', label: 'Kill', enabled: true, why: 'Ends all ranks now.' }
    ],
    charts: [chart(series())],
    more_metrics: [],
    trials: [trial()],
    num_trials: 1,
    checkpoints: {
      count: 0,
      size_bytes: 0,
      latest_step: null,
      metric: 'accuracy',
      best_metric: null,
      best_step: null
    },
    captured: [],
    num_captured: 0,
    notices: [],
    ...changes
  };
}
