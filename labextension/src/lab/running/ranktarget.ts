/** The trial or rank that a command is about, from arguments or the Running panel's items. */
import type { JupyterFrontEnd } from '@jupyterlab/application';
import type { ReadonlyPartialJSONObject } from '@lumino/coreutils';

import type { ITrans } from '../../model/trans.js';

export interface IPlace {
  trial_id: number;
  /** Absent for the whole trial. */
  rank?: number;
}

const CONTEXT = /^det-trial-(\d+)(?:-rank-(\d+))?$/;

/** The schema of these arguments, for `describedBy`. */
export function placeSchema(trans: ITrans) {
  return {
    trial_id: { type: 'integer', description: trans.__('Number of the trial') },
    rank: { type: 'integer', description: trans.__('One of its ranks') },
    where: {
      type: 'string',
      description: trans.__('Where the trial is taken from if trial_id is omitted'),
      oneOf: [{ const: 'menu', title: trans.__('Context menu') }]
    }
  };
}

/** The `data-context` of an item in the Running panel; for a rank, also its kernel's name. */
export function contextOf({ trial_id, rank }: IPlace): string {
  return rank === undefined ? `det-trial-${trial_id}` : `det-trial-${trial_id}-rank-${rank}`;
}

/** The rank whose kernel has this name; null for other kernels. */
export function rankOf(kernelName: string): Required<IPlace> | null {
  const { trial_id, rank } = parse(kernelName) ?? {};
  return trial_id === undefined || rank === undefined ? null : { trial_id, rank };
}

/** The trial or rank in a command's arguments; null if they are invalid. */
export function placeOf(
  app: Pick<JupyterFrontEnd, 'contextMenuHitTest'>,
  args: ReadonlyPartialJSONObject
): IPlace | null {
  if (typeof args.trial_id === 'number') {
    const { trial_id, rank } = args;
    return typeof rank === 'number' ? { trial_id, rank } : { trial_id };
  }
  if (args.where !== 'menu') {
    return null;
  }
  const item = app.contextMenuHitTest(node => CONTEXT.test(node.dataset.context ?? ''));
  return item === undefined ? null : parse(item.dataset.context ?? '');
}

function parse(context: string): IPlace | null {
  const [, trial, rank] = CONTEXT.exec(context) ?? [];
  if (trial === undefined) {
    return null;
  }
  return rank === undefined
    ? { trial_id: Number(trial) }
    : { trial_id: Number(trial), rank: Number(rank) };
}
