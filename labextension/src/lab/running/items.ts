/** Trials that hold slots and their ranks, as items of JupyterLab's Running panel. */
import type { IRunningSessions } from '@jupyterlab/running';

import { type ITrans, statusWord } from '../../model/trans.js';
import type { IRankLine, ITrialLine } from '../../model/state.js';
import { statusIcon } from './runningicons.js';
import { contextOf } from './ranktarget.js';

export interface IActions {
  openTrial(trial: ITrialLine): void;
  openRank(trial: ITrialLine, rank: IRankLine): void;
  /** Absent if this user may not kill. */
  kill?: (trial: ITrialLine) => void;
}

/** Trials with their ranks as children; in a list, ranks follow their trial. */
export function itemsOf(
  trials: readonly ITrialLine[],
  mode: 'tree' | 'list',
  actions: IActions,
  trans: ITrans
): IRunningSessions.IRunningItem[] {
  return trials.flatMap(trial => {
    const ranks = trial.ranks.map(rank => rankItem(trial, rank, mode, actions, trans));
    const item = trialItem(trial, actions, trans);
    return mode === 'list' ? [item, ...ranks] : [{ ...item, children: ranks }];
  });
}

function trialItem(
  trial: ITrialLine,
  { openTrial, kill }: IActions,
  trans: ITrans
): IRunningSessions.IRunningItem {
  const isAlarm = trial.alarm !== '';
  const count = trial.steps_completed;
  const steps = trans._n('%2 step', '%2 steps', count, count.toLocaleString());
  return {
    className: `jp-DetRunning jp-DetRunning-trial jp-mod-${isAlarm ? 'error' : trial.status}`,
    context: contextOf({ trial_id: trial.id }),
    icon: () => statusIcon(trial.status),
    label: () => trans.__('%1: %2', trial.id, trial.experiment),
    // The panel is narrow: a running trial shows its progress, the tooltip state and progress.
    detail: () =>
      trial.status !== 'running' ? trial.status_word : isAlarm ? alarmWord(trial, trans) : steps,
    labelTitle: () =>
      [
        trans.__('Trial %1 of experiment %2: %3', trial.id, trial.experiment_id, trial.experiment),
        `${trial.status_word}, ${steps}, ${Math.floor(trial.progress * 100)}%`,
        ...(isAlarm ? [trial.alarm] : []),
        trans.__('Click to open its page')
      ].join('\n'),
    open: () => openTrial(trial),
    ...(kill ? { shutdown: () => kill(trial) } : {})
  };
}

/** The kind of a trial's alarm, in a word. */
function alarmWord({ alarm_kind: kind }: ITrialLine, trans: ITrans): string {
  if (kind === 'waits for room') {
    return trans.__('waits for room');
  }
  if (kind === 'uploads wait') {
    return trans.__('uploads wait');
  }
  if (kind === 'silent') {
    return trans.__('silent');
  }
  return kind === 'hangs' ? trans.__('hangs') : trans.__('diverged');
}

function rankItem(
  trial: ITrialLine,
  rank: IRankLine,
  mode: 'tree' | 'list',
  { openRank }: IActions,
  trans: ITrans
): IRunningSessions.IRunningItem {
  const isUsual = rank.status === 'running' && !rank.hangs;
  return {
    className: `jp-DetRunning jp-DetRunning-rank jp-mod-${rank.hangs ? 'error' : rank.status}`,
    context: contextOf({ trial_id: trial.id, rank: rank.rank }),
    icon: () => statusIcon(rank.status),
    label: () =>
      mode === 'list'
        ? trans.__('Trial %1, rank %2', trial.id, rank.rank)
        : trans.__('Rank %1', rank.rank),
    detail: () => (isUsual ? rank.slot : `${wordOf(rank, trial, trans)}, ${rank.slot}`),
    labelTitle: () =>
      [
        trans.__('Rank %1 of trial %2, process %3', rank.rank, trial.id, rank.pid),
        [wordOf(rank, trial, trans), rank.slot, rank.device, rank.agent_id]
          .filter(word => word !== '')
          .join(', '),
        trans.__('Click to open its log')
      ].join('\n'),
    open: () => openRank(trial, rank)
  };
}

/** The word of a rank's status: hangs, starting, or that of its trial. */
function wordOf(rank: IRankLine, trial: ITrialLine, trans: ITrans): string {
  if (rank.hangs) {
    return trans.__('hangs');
  }
  return rank.status === trial.status ? trial.status_word : statusWord(rank.status, trans);
}
