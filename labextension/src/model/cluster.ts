/**
 * The part of the state that tells of slots and of who waits for them; knows no DOM.
 *
 * The interfaces mirror det_jupyter/view/model/cluster.py, where each field is explained;
 * a test compares the two.
 */
import type { ISearch, ITrial } from './state.js';
import type { ITrans } from './trans.js';

export type SlotState = 'free' | 'used' | 'leaving' | 'occupied' | 'disabled';

export interface ISlotBar {
  id: number;
  state: SlotState;
  is_own: boolean;
  who: string;
  facts: string[];
}

export interface IAgentBars {
  id: string;
  is_connected: boolean;
  note: string;
  slots: ISlotBar[];
  more: string;
}

export interface IPoolBars {
  name: string;
  rules: string;
  counts: string;
  agents: IAgentBars[];
  more: string;
}

export interface IRemedy {
  sentence: string;
  command: string;
}

export interface IWait {
  trial_id: number;
  sentence: string;
  expected: string;
  remedies: IRemedy[];
}

export interface IQueueRow {
  place: number;
  trial_id: number;
  experiment: string;
  is_own: boolean;
  pool: string;
  slots: string;
  since: string;
  sentence: string;
}

export interface ICluster {
  summary: string;
  is_waiting: boolean;
  pools: IPoolBars[];
  queue: IQueueRow[];
  num_waiting: number;
  waits: IWait[];
}

function plainWait(trialId: number, sentence: string): IWait | null {
  return sentence ? { trial_id: trialId, sentence, expected: '', remedies: [] } : null;
}

/** All that is known of why a trial waits, if it does. */
export function waitOf(trial: ITrial, cluster: ICluster | null): IWait | null {
  const known = cluster?.waits.find(wait => wait.trial_id === trial.id);
  return trial.status === 'queued' && known !== undefined
    ? known
    : plainWait(trial.id, trial.waiting_for);
}

/** Why no trial of a search runs: what is known of the first one that waits. */
export function waitOfSearch(
  search: ISearch,
  cluster: ICluster | null,
  trans: ITrans
): IWait | null {
  if (search.rows.some(row => row.num_slots > 0)) {
    return null;
  }
  const first = cluster?.waits[0];
  return first === undefined
    ? plainWait(0, search.waiting_for)
    : { ...first, sentence: trans.__('trial %1: %2', first.trial_id, first.sentence) };
}
