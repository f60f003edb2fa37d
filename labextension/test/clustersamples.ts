import type {
  IAgentBar,
  ISlotsAndQueue,
  IPoolSlots,
  IQueueRow,
  ISlot,
  IWait
} from '../src/model/state.js';

export function slot(id: number, changes: Partial<ISlot> = {}): ISlot {
  return {
    id,
    device: 'NVIDIA H100',
    state: 'used',
    is_own: false,
    who: 'resnet',
    facts: [`slot ${id}`, 'in use', 'experiment 3 “resnet”'],
    experiment_id: 3,
    trial_id: 5,
    rank: 0,
    ...changes
  };
}

export function agent(id: string, slots: ISlot[], changes: Partial<IAgentBar> = {}): IAgentBar {
  const named = { id, hostname: id, pool: 'default', facts: [id] };
  return { ...named, is_connected: true, note: '', slots, more: '', ...changes };
}

export function pool(agents: IAgentBar[], changes: Partial<IPoolSlots> = {}): IPoolSlots {
  return {
    name: 'default',
    rules: 'by priority',
    counts: '8 slots: 6 used, 2 free',
    agents,
    more: '',
    ...changes
  };
}

export function wait(changes: Partial<IWait> = {}): IWait {
  return {
    trial_id: 1,
    key: 'slots',
    sentence: 'needs 4 slots; 2 of 8 are free',
    expected: 'expected to start at 14:34 (14:24 to 14:54)',
    remedies: [
      { id: 'wait 3', sentence: 'wait until experiment 3 ends', command: '', button: '' },
      {
        id: 'pause 3',
        sentence: 'pause experiment 3',
        command: '%det_experiment pause 3',
        button: 'Pause'
      }
    ],
    ...changes
  };
}

export function queued(place: number, changes: Partial<IQueueRow> = {}): IQueueRow {
  return {
    place,
    trial_id: 19 + place,
    experiment: 'experiment 5 “bert”',
    is_own: false,
    pool: 'default',
    slots: '4 slots',
    since: '14:11',
    sentence: 'needs 4 slots; 2 are free',
    ...changes
  };
}

/** Eight slots of one agent, of which the last is free; nobody waits. */
export function cluster(changes: Partial<ISlotsAndQueue> = {}): ISlotsAndQueue {
  const slots = Array.from({ length: 7 }, (_, i) => slot(i));
  slots.push(slot(7, { state: 'free', who: 'free', facts: ['slot 7', 'free'] }));
  return {
    summary: '8 slots: 7 used, 1 free',
    is_waiting: false,
    pools: [pool([agent('local', slots)])],
    queue: [],
    num_waiting: 0,
    ...changes
  };
}
