import type {
  IAxis,
  IChart,
  ITrialRow,
  ISearchState,
  IChartSeries,
  ITrialDetails,
  IViewState
} from '../src/model/state.js';

export function series(changes: Partial<IChartSeries> = {}): IChartSeries {
  return {
    trial_id: 1,
    label: 'training',
    kind: 'line',
    look: 0,
    is_faint: false,
    steps: [1, 2, 3],
    values: [3, 2, 1],
    seconds: [0, 1, 2],
    steps_per_epoch: null,
    last: 1,
    lowest: 1,
    highest: 3,
    ...changes
  };
}

export function chart(...all: IChartSeries[]): IChart {
  return { title: 'loss', series: all, hidden: 0 };
}

export function trial(changes: Partial<ITrialDetails> = {}): ITrialDetails {
  return {
    id: 1,
    status: 'running',
    status_word: 'Running',
    progress: 0.5,
    steps_completed: 44,
    best: 0.5,
    latest: 0.5,
    num_steps: 88,
    restarts: 0,
    num_recoveries: 0,
    hparams: 'lr=0.05',
    wait: null,
    makes_room: '',
    backend: 'gloo',
    launch_note: '',
    first_step_s: 0.09,
    verdict: null,
    ranks: [
      { rank: 0, pid: 4200, slot: 'cpu 0', device: 'cpu', status: 'running', hangs: false },
      { rank: 1, pid: 4201, slot: 'cpu 1', device: 'cpu', status: 'running', hangs: false }
    ],
    failure: null,
    traces: [],
    ...changes
  };
}

export function state(changes: Partial<IViewState> = {}): IViewState {
  return {
    id: 7,
    name: 'digits',
    labels: ['good', 'wide'],
    description: 'Two hidden layers.',
    status: 'running',
    status_word: 'Running',
    as_of: 1000,
    created_at: 958,
    ended_at: null,
    held_s: 0,
    held_since: 958,
    progress: 0.5,
    eta_s: 40,
    steps_per_epoch: 22,
    summary: ['step 44', 'epoch 2.0'],
    message: '',
    actions: [
      { verb: 'pause', label: 'Pause', enabled: true, why: 'Gives the slots back.' },
      { verb: 'activate', label: 'Activate', enabled: false, why: 'It is active already.' },
      { verb: 'kill', label: 'Kill', enabled: true, why: 'Ends all ranks now.' }
    ],
    charts: [chart(series())],
    more_metrics: [],
    no_metrics: '',
    trials: [trial()],
    num_trials: 1,
    search: null,
    cluster: null,
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
    lacks_callback: false,
    hangs: [],
    alarms: [],
    changes: [],
    ...changes
  };
}

export function row(changes: Partial<ITrialRow> = {}): ITrialRow {
  const { rungs = [0.5], aim = 0 } = changes;
  return {
    id: 1,
    status: 'resting',
    status_word: 'Resting',
    bracket: 0,
    rungs: [0.5],
    aim: 0,
    marks: [
      ...rungs.map(() => 'resting' as const),
      ...(aim < rungs.length ? [] : ['running' as const])
    ],
    best: 0.5,
    latest: 0.5,
    steps_completed: 22,
    num_slots: 0,
    values: [0.01, 0],
    metrics: [],
    ...changes
  };
}

export function axis(changes: Partial<IAxis> = {}): IAxis {
  return {
    name: 'accuracy',
    scale: 'linear',
    is_whole: false,
    start: 0,
    end: 1,
    labels: [],
    ticks: [0, 0.5, 1],
    tick_labels: ['0', '0.5', '1'],
    ...changes
  };
}

/** Accuracy, on rungs of 1 and 4 epochs, by a learning rate and an optimizer. */
export function search(rows: ITrialRow[], changes: Partial<ISearchState> = {}): ISearchState {
  return {
    searcher: 'async_halving',
    metric: 'accuracy',
    smaller_is_better: false,
    max_trials: 16,
    divisor: 4,
    counts: { done: 1, running: 2, resting: 3, waiting: 0, failed: 0, canceled: 0 },
    axes: [
      axis({
        ...{ name: 'lr', scale: 'log', start: 1e-4, end: 0.1 },
        ...{ ticks: [1e-4, 1e-3, 0.01, 0.1], tick_labels: ['1e-4', '0.001', '0.01', '0.1'] }
      }),
      axis({
        ...{ name: 'optimizer.name', scale: 'category', is_whole: true, start: -0.5, end: 1.5 },
        ...{ labels: ['sgd', 'adam'], ticks: [0, 1], tick_labels: ['sgd', 'adam'] }
      })
    ],
    best_axis: axis(),
    rung_axis: axis(),
    progress_axis: axis(),
    brackets: [
      {
        rungs: [
          { label: '1 epoch', short_label: '1', left: 0, num_results: 3, num_promoted: 1 },
          { label: '4 epochs', short_label: '4', left: 0.5, num_results: 1, num_promoted: 0 }
        ],
        num_created: 3,
        max_trials: 16
      }
    ],
    rung_width: 0.5,
    rows,
    metrics: [],
    importance: null,
    improvements: [],
    wait: null,
    remarks: [],
    num_more_remarks: 0,
    chosen: null,
    ...changes
  };
}
