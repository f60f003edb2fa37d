/** What can be done to an experiment: the words, and when it is possible. Knows no JupyterLab. */
import type { ITrans } from '../../model/trans.js';
import { ENDED, type IExperimentLine } from '../../model/state.js';

export const CHANGES = [
  'pause',
  'activate',
  'cancel',
  'kill',
  'archive',
  'unarchive',
  'delete'
] as const;

/** A verb of the master's `POST experiments/{id}/{verb}`. */
export type Change = (typeof CHANGES)[number];

export interface IChangeWords {
  label: string;
  caption: string;
  /** What it takes away, for the question before; '' if nothing. */
  warning: string;
}

export function isChange(text: unknown): text is Change {
  return (CHANGES as readonly unknown[]).includes(text);
}

/** The words of a change. */
export function wordsOf(change: Change, trans: ITrans): IChangeWords {
  const all: Record<Change, IChangeWords> = {
    pause: {
      label: trans.__('Pause'),
      caption: trans.__('All ranks save their state and free their slots'),
      warning: ''
    },
    activate: {
      label: trans.__('Activate'),
      caption: trans.__('Go on from where it was paused'),
      warning: ''
    },
    cancel: {
      label: trans.__('Cancel'),
      caption: trans.__('End it after saving its state'),
      warning: ''
    },
    kill: {
      label: trans.__('Kill'),
      caption: trans.__('End it at once, without saving'),
      warning: trans.__('It ends at once. What it has not saved is lost.')
    },
    archive: {
      label: trans.__('Archive'),
      caption: trans.__('Take it out of the lists; nothing is deleted'),
      warning: ''
    },
    unarchive: {
      label: trans.__('Unarchive'),
      caption: trans.__('Put it back into the lists'),
      warning: ''
    },
    delete: {
      label: trans.__('Delete'),
      caption: trans.__('Delete it with its metrics, logs and checkpoints'),
      warning: trans.__('Its metrics, logs and checkpoints are deleted. This cannot be undone.')
    }
  };
  return all[change];
}

/** Whether a change makes sense in the state that the experiment is in. */
export function isPossible(change: Change, row: IExperimentLine): boolean {
  const isOver = ENDED.includes(row.status);
  switch (change) {
    case 'archive':
      return isOver && !row.is_archived;
    case 'unarchive':
      return row.is_archived;
    case 'delete':
      return isOver;
    case 'cancel':
      return !isOver && row.status !== 'stopping';
    default:
      return row.actions.some(({ verb, enabled }) => verb === change && enabled);
  }
}

/** Labels as people type them: `baseline, new data`. */
export function parseLabels(text: string): string[] {
  const labels = text.split(',').map(label => label.trim());
  return [...new Set(labels.filter(label => label !== ''))];
}

/** What the master is asked for, so that `before` becomes `after`. */
export function labelChange(
  before: readonly string[],
  after: readonly string[]
): { add_labels: string[]; remove_labels: string[] } {
  return {
    add_labels: after.filter(label => !before.includes(label)),
    remove_labels: before.filter(label => !after.includes(label))
  };
}
