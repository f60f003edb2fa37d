import type { IExperimentRow, ISlot } from '../../../src/model/state.js';

export function line(id: number, changes: Partial<IExperimentRow> = {}): IExperimentRow {
  return {
    id,
    key: `${id}@1`,
    name: `run ${id}`,
    status: 'completed',
    status_word: 'Completed',
    progress: 1,
    metric: 'loss',
    smaller_is_better: true,
    best_metric: null,
    num_trials: 1,
    num_slots: 0,
    labels: [],
    description: '',
    notebook: '',
    entrypoint: 'Trial',
    created_at: 1000 + id,
    ended_at: 2000 + id,
    held_s: 60,
    queue_place: null,
    priority: 42,
    position: id,
    is_archived: false,
    is_unmanaged: false,
    is_quiet: false,
    wait: '',
    remedies: [],
    failure: '',
    alarm: '',
    alarm_kind: '',
    actions: [],
    ...changes
  };
}

export function rowsOf(...lines: IExperimentRow[]): Map<number, IExperimentRow> {
  return new Map(lines.map(one => [one.id, one]));
}

export function slot(id: number, changes: Partial<ISlot> = {}): ISlot {
  return {
    id,
    device: 'NVIDIA H100',
    state: 'free',
    is_own: false,
    who: 'free',
    facts: [`slot ${id}`],
    experiment_id: null,
    trial_id: null,
    rank: null,
    ...changes
  };
}
