/** The icons in the tabs of pages. */
import { LabIcon } from '@jupyterlab/ui-components';

import { icon } from '../../dom/icons.js';
import type { Status } from '../../model/state.js';

const SVG = 'xmlns="http://www.w3.org/2000/svg" width="16" viewBox="0 0 16 16"';
const LINE = 'stroke-width="1.5" stroke-linecap="round" stroke-linejoin="round"';
const AXES = 'M2 2v12h12';
const CURVE = 'M4.5 3.5c1 6 4 7 9 7.4';

function drawn(name: string, path: string): LabIcon {
  const shape = `<path style="fill: none" stroke="currentColor" ${LINE} d="${path}"/>`;
  return new LabIcon({ name: `det-jupyter:${name}`, svgstr: `<svg ${SVG}>${shape}</svg>` });
}

/** The icon of a page until its first state has arrived. */
export const experimentPageIcon = drawn('experiment-page', AXES + CURVE);

export const comparisonIcon = drawn('comparison-page', `${AXES}${CURVE}M4.5 9c2-1 5-4 9-5`);

export const modelIcon = drawn('model-page', 'M8 2l5.5 3v6L8 14l-5.5-3V5zM2.5 5L8 8l5.5-3M8 8v6');

const statusIcons = new Map<Status, LabIcon>();

/** The icon of a status, in the colour of the tab's text. */
export function statusIcon(status: Status): LabIcon {
  let known = statusIcons.get(status);
  if (known === undefined) {
    const svg = icon(status);
    svg.setAttribute('width', '16');
    const svgstr = new XMLSerializer().serializeToString(svg);
    known = new LabIcon({ name: `det-jupyter:status-${status}`, svgstr });
    statusIcons.set(status, known);
  }
  return known;
}
