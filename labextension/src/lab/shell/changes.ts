/** The changes of an experiment: their texts, and when they are possible. Independent of JupyterLab. */
import type { ITrans } from '../../model/trans.js';
import { ENDED, type IExperimentRow } from '../../model/state.js';

export const CHANGES = [
  'pause',
  'activate',
  'cancel',
  'kill',
  'archive',
  'unarchive',
  'delete'
] as const;

/** Experiments that are named in a confirmation. */
const MOST_NAMES = 5;

/** A verb of the master's `POST experiments/{id}/{verb}`. */
export type Change = (typeof CHANGES)[number];

export interface IChangeWords {
  label: string;
  caption: string;
  /** What is lost, for the confirmation; '' if nothing. */
  warning: string;
}

export function isChange(text: unknown): text is Change {
  return (CHANGES as readonly unknown[]).includes(text);
}

/** The texts of a change. */
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

/** Whether a change is possible in the experiment's state. */
export function isPossible(change: Change, row: IExperimentRow): boolean {
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

/** The text of a confirmation: the experiments, and what is lost. */
export function questionOf(
  verb: 'kill' | 'delete',
  rows: readonly IExperimentRow[],
  numLeft: number,
  trans: ITrans
): { title: string; body: string } {
  const count = rows.length;
  const [first] = rows as [IExperimentRow];
  const { warning } = wordsOf(verb, trans);
  if (count === 1 && numLeft === 0) {
    const title =
      verb === 'kill'
        ? trans.__('Kill experiment %1?', first.id)
        : trans.__('Delete experiment %1?', first.id);
    return { title, body: `${first.name}: ${warning}` };
  }
  const names = rows.slice(0, MOST_NAMES).map(({ id, name }) => `${name} (#${id})`);
  const more = count - names.length;
  const trials = rows.reduce((sum, row) => sum + row.num_trials, 0);
  const lost =
    verb === 'kill'
      ? trans.__('They end at once. What they have not saved is lost.')
      : trans._n(
          'The metrics, logs and checkpoints of %1 trial are deleted. This cannot be undone.',
          'The metrics, logs and checkpoints of %1 trials are deleted. This cannot be undone.',
          trials
        );
  const left =
    verb === 'kill'
      ? trans._n('%1 other has ended.', '%1 others have ended.', numLeft)
      : trans._n(
          '%1 other has not ended and is kept.',
          '%1 others have not ended and are kept.',
          numLeft
        );
  return {
    title:
      verb === 'kill'
        ? trans._n('Kill %1 experiment?', 'Kill %1 experiments?', count)
        : trans._n('Delete %1 experiment?', 'Delete %1 experiments?', count),
    body: [
      `${names.join(', ')}${more > 0 ? ` ${trans._n('and %1 more', 'and %1 more', more)}` : ''}.`,
      lost,
      ...(numLeft > 0 ? [left] : [])
    ].join(' ')
  };
}

/** The labels that all experiments have, in the order of the first. */
export function commonLabels(rows: readonly IExperimentRow[]): string[] {
  const [first, ...others] = rows;
  return (first?.labels ?? []).filter(label =>
    others.every(({ labels }) => labels.includes(label))
  );
}

/** Parses labels as typed: `baseline, new data`. */
export function parseLabels(text: string): string[] {
  const labels = text.split(',').map(label => label.trim());
  return [...new Set(labels.filter(label => label !== ''))];
}

/** The requests that change labels from `before` to `after`. */
export function labelChange(
  before: readonly string[],
  after: readonly string[]
): { add_labels: string[]; remove_labels: string[] } {
  return {
    add_labels: after.filter(label => !before.includes(label)),
    remove_labels: before.filter(label => !after.includes(label))
  };
}
