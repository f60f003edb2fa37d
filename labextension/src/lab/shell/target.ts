/** The experiments that a command is about. */
import type { JupyterFrontEnd } from '@jupyterlab/application';
import type { ReadonlyPartialJSONObject } from '@lumino/coreutils';

import type { IExperimentRow } from '../../model/state.js';
import { EXPERIMENT_ATTRIBUTE, SELECTED_ATTRIBUTE, type IDetJupyter } from '../tokens.js';

/** The schema of the argument with an experiment, for `describedBy`. */
export const TARGET_SCHEMA = {
  experiment_id: { type: 'integer', description: 'Number of the experiment' },
  where: {
    type: 'string',
    description: 'Without a number: that of the element with the context menu, or of the page',
    enum: ['menu', 'page']
  }
};

/** The same, for commands that accept several. */
export const TARGETS_SCHEMA = {
  ...TARGET_SCHEMA,
  experiment_ids: {
    type: 'array',
    items: { type: 'integer' },
    description: 'Numbers of several experiments'
  }
};

type App = Pick<JupyterFrontEnd, 'contextMenuHitTest' | 'shell'>;

/** The experiment's id; null without one, or for several. */
export function targetOf(app: App, args: ReadonlyPartialJSONObject): number | null {
  const [only, ...others] = targetsOf(app, args);
  return only === undefined || others.length > 0 ? null : only;
}

/** The ids of all experiments: the menu of a selected row is for all selected ones. */
export function targetsOf(app: App, args: ReadonlyPartialJSONObject): number[] {
  const { experiment_id: id, experiment_ids: ids } = args;
  if (Array.isArray(ids)) {
    return ids.filter(one => typeof one === 'number');
  }
  if (typeof id === 'number') {
    return [id];
  }
  if (args.where === 'menu') {
    const element = app.contextMenuHitTest(node => node.hasAttribute(EXPERIMENT_ATTRIBUTE));
    const under = numberOf(element);
    const selected = element?.closest(`[${SELECTED_ATTRIBUTE}]`);
    const all = (selected?.getAttribute(SELECTED_ATTRIBUTE) ?? '').split(' ').map(Number);
    return under === null ? [] : all.includes(under) ? all : [under];
  }
  const page = app.shell.currentWidget?.node;
  const front = numberOf(page?.closest(`[${EXPERIMENT_ATTRIBUTE}]`) ?? firstIn(page));
  return front === null ? [] : [front];
}

/** The rows of those that are in the list. */
export function rowsOf(
  app: App,
  det: IDetJupyter,
  args: ReadonlyPartialJSONObject
): IExperimentRow[] {
  return targetsOf(app, args).flatMap(id => det.experiments.rows.get(id) ?? []);
}

/** The element with the id: a page's MainAreaWidget or its content. */
function firstIn(page: Element | undefined): Element | null {
  return page?.querySelector(`:scope > [${EXPERIMENT_ATTRIBUTE}]`) ?? null;
}

function numberOf(element: Element | null | undefined): number | null {
  const text = element?.getAttribute(EXPERIMENT_ATTRIBUTE) ?? '';
  return /^\d+$/.test(text) ? Number(text) : null;
}
