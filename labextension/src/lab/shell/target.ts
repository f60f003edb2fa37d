/** Which experiment a command is about. */
import type { JupyterFrontEnd } from '@jupyterlab/application';
import type { ReadonlyPartialJSONObject } from '@lumino/coreutils';

import { EXPERIMENT_ATTRIBUTE } from '../tokens.js';

/** The arguments that say which experiment is meant, for `describedBy`. */
export const TARGET_SCHEMA = {
  experiment_id: { type: 'integer', description: 'Number of the experiment' },
  where: {
    type: 'string',
    description: 'Without a number: that of the element with the context menu, or of the page',
    enum: ['menu', 'page']
  }
};

/** The experiment's number; null if the arguments name none and there is none at that place. */
export function targetOf(app: JupyterFrontEnd, args: ReadonlyPartialJSONObject): number | null {
  if (typeof args.experiment_id === 'number') {
    return args.experiment_id;
  }
  if (args.where === 'menu') {
    return numberOf(app.contextMenuHitTest(node => node.hasAttribute(EXPERIMENT_ATTRIBUTE)));
  }
  const page = app.shell.currentWidget?.node;
  return numberOf(page?.closest(`[${EXPERIMENT_ATTRIBUTE}]`) ?? firstIn(page));
}

/** A page is a MainAreaWidget, and the number may be on what it holds. */
function firstIn(page: Element | undefined): Element | null {
  return page?.querySelector(`:scope > [${EXPERIMENT_ATTRIBUTE}]`) ?? null;
}

function numberOf(element: Element | null | undefined): number | null {
  const text = element?.getAttribute(EXPERIMENT_ATTRIBUTE) ?? '';
  return /^\d+$/.test(text) ? Number(text) : null;
}
