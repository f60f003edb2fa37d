/** The drawing core's shapes of states, as icons of JupyterLab. */
import { LabIcon } from '@jupyterlab/ui-components';

import { icon } from '../../dom/icons.js';
import type { Status } from '../../model/state.js';

const made = new Map<Status, LabIcon>();

/** Cached, as a new object would be redrawn and flicker. */
export function statusIcon(status: Status): LabIcon {
  let found = made.get(status);
  if (found === undefined) {
    const svgstr = new XMLSerializer().serializeToString(icon(status));
    found = new LabIcon({ name: `det-jupyter:status-${status}`, svgstr });
    made.set(status, found);
  }
  return found;
}

function stroked(name: string, path: string): LabIcon {
  const line = 'stroke-width="1.5" stroke-linecap="round" stroke-linejoin="round"';
  const shape = `<path class="jp-icon3 jp-icon-selectable" fill="none" stroke="#616161" ${line} d="${path}"/>`;
  const svgstr = `<svg xmlns="http://www.w3.org/2000/svg" width="16" viewBox="0 0 16 16">${shape}</svg>`;
  return new LabIcon({ name: `det-jupyter:${name}`, svgstr });
}

/** Nested lines, like stack frames. */
export const stacksIcon = stroked('stacks', 'M3 3.5h10M5 6.5h8M7 9.5h6M9 12.5h4');
