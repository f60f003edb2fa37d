/** The icons of pages. */
import { LabIcon } from '@jupyterlab/ui-components';

function drawn(name: string, paths: string): LabIcon {
  const svgstr = `<svg xmlns="http://www.w3.org/2000/svg" width="16" viewBox="0 0 16 16"><g class="jp-icon3" fill="none" stroke="#616161" stroke-width="1.6" stroke-linecap="round" stroke-linejoin="round">${paths}</g></svg>`;
  return new LabIcon({ name: `det-jupyter:${name}`, svgstr });
}

/** Curves of a run that gets better. */
export const experimentPageIcon = drawn(
  'experiment-page',
  '<path d="M2 2v12h12"/><path d="M4.5 4c1 6 4 7 9 7.4"/>'
);

export const comparisonIcon = drawn(
  'comparison-page',
  '<path d="M2 2v12h12"/><path d="M4.5 4c1 6 4 7 9 7.4"/><path d="M4.5 7.500c2-1 5-4 9-4.500"/>'
);
