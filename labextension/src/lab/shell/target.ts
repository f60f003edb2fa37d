/** Which experiments a command is about. */
import type { JupyterFrontEnd } from '@jupyterlab/application';
import type { ReadonlyPartialJSONObject } from '@lumino/coreutils';

import type { IExperimentLine } from '../../model/state.js';
import { EXPERIMENT_ATTRIBUTE, SELECTED_ATTRIBUTE, type IDetJupyter } from '../tokens.js';

/** The arguments that say which experiment is meant, for `describedBy`. */
export const TARGET_SCHEMA = {
  experiment_id: { type: 'integer', description: 'Number of the experiment' },
  where: {
    type: 'string',
    description: 'Without a number: that of the element with the context menu, or of the page',
    enum: ['menu', 'page']
  }
};

/** The same, for commands that are about several, too. */
export const TARGETS_SCHEMA = {
  ...TARGET_SCHEMA,
  experiment_ids: {
    type: 'array',
    items: { type: 'integer' },
    description: 'Numbers of several experiments'
  }
};

type App = Pick<JupyterFrontEnd, 'contextMenuHitTest' | 'shell'>;

/** The experiment's number; null if the arguments name none, or several are meant. */
export function targetOf(app: App, args: ReadonlyPartialJSONObject): number | null {
  const [only, ...others] = targetsOf(app, args);
  return only === undefined || others.length > 0 ? null : only;
}

/** The numbers of all that are meant: the menu of a row that is selected is about all selected. */
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

/** Those of them that are known. */
export function rowsOf(
  app: App,
  det: IDetJupyter,
  args: ReadonlyPartialJSONObject
): IExperimentLine[] {
  return targetsOf(app, args).flatMap(id => det.experiments.rows.get(id) ?? []);
}

/** A page is a MainAreaWidget, and the number may be on what it holds. */
function firstIn(page: Element | undefined): Element | null {
  return page?.querySelector(`:scope > [${EXPERIMENT_ATTRIBUTE}]`) ?? null;
}

function numberOf(element: Element | null | undefined): number | null {
  const text = element?.getAttribute(EXPERIMENT_ATTRIBUTE) ?? '';
  return /^\d+$/.test(text) ? Number(text) : null;
}
