/** Icons for tabs, menus and buttons; JupyterLab colours them by their `jp-icon` classes. */
import { LabIcon } from '@jupyterlab/ui-components';

function made(name: string, shapes: string): LabIcon {
  const svgstr = `<svg xmlns="http://www.w3.org/2000/svg" width="16" viewBox="0 0 16 16">${shapes}</svg>`;
  return new LabIcon({ name: `det-jupyter:${name}`, svgstr });
}

function filled(name: string, path: string): LabIcon {
  return made(name, `<path class="jp-icon3" fill="#616161" d="${path}"/>`);
}

/** The group has `fill`, as JupyterLab fills elements that have both `fill` and an icon's class. */
function stroked(name: string, path: string): LabIcon {
  const line = 'stroke-width="1.5" stroke-linecap="round" stroke-linejoin="round"';
  const shape = `<path class="jp-icon3" stroke="#616161" ${line} d="${path}"/>`;
  return made(name, `<g fill="none">${shape}</g>`);
}

/** A cell with slots beside it. */
export const runCellIcon = made(
  'run-cell',
  `<g class="jp-icon3" fill="#616161"><path d="M2 2.5v11l7.5-5.5z"/>
<rect x="11" y="2.5" width="3" height="3" rx=".6"/><rect x="11" y="6.5" width="3" height="3" rx=".6"/>
<rect x="11" y="10.5" width="3" height="3" rx=".6"/></g>`
);

export const pauseIcon = filled('pause', 'M4 3h2.75v10H4zM9.25 3H12v10H9.25z');
export const activateIcon = filled('activate', 'M4.5 2.6v10.8L13.2 8z');
export const killIcon = filled('kill', 'M3.5 3.5h9v9h-9z');
export const cancelIcon = stroked('cancel', 'M3.5 3.5h9v9h-9z');
export const archiveIcon = stroked('archive', 'M2.5 3h11v3h-11zM3.5 6v7h9V6M6.5 8.75h3');
export const unarchiveIcon = stroked(
  'unarchive',
  'M2.5 3h11v3h-11zM3.5 6v7h9V6M8 11.5V8M6.5 9.25L8 7.75l1.5 1.5'
);
/** Bars, and an arrow out of their page. */
export const boardIcon = stroked('board', 'M3 13V9M6.5 13V6M10 13v-3M9.5 3H13v3.5M13 3L9 7');
export const deleteIcon = stroked(
  'delete',
  'M3 4.5h10M6 4.5V3h4v1.5M4.25 4.5l.5 8.5h6.5l.5-8.5M6.75 7v3.75M9.25 7v3.75'
);
export const labelIcon = stroked('label', 'M2.5 3v4.75l5.75 5.75 5-5L7.25 3zM5 5.5v.1');
export const compareIcon = stroked(
  'compare',
  'M2.5 2.5v11h11M4.5 10.5l3-4 2.5 2 3.5-5M4.5 6.5l3 3 6-1'
);
export const renameIcon = stroked('rename', 'M3 13l.6-2.8 7-7 2.2 2.2-7 7zM9.2 4.6l2.2 2.2');
export const forkIcon = stroked(
  'fork',
  'M4 5.5v5M4 5.5a1.5 1.5 0 1 1 .01 0M4 13.5a1.5 1.5 0 1 1 .01 0M12 5.5a1.5 1.5 0 1 1 .01 0M12 5.5c0 3-4 2-8 4'
);
export const exportIcon = stroked('export', 'M8 2.5v7.5M5 7.25l3 3 3-3M2.5 11v2.5h11V11');
export const switchSlotIcon = stroked(
  'switch-slot',
  'M4.5 4.5h7v7h-7zM6.5 2v2.5M9.5 2v2.5M6.5 11.5V14M9.5 11.5V14M3 13L13 3'
);
export const copyIcon = stroked('copy', 'M5.5 5.5h8v8h-8zM10.5 5.5v-3h-8v8h3');
export const logsIcon = stroked('logs', 'M3 3.5h10M3 6.5h7M3 9.5h10M3 12.5h5');
export const startIcon = stroked('start', 'M8 2v5.5M4.6 4.4a5 5 0 1 0 6.8 0');
