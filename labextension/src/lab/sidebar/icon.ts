/** The icon of the sidebar: slots, two of which are used. */
import { LabIcon } from '@jupyterlab/ui-components';

const SVG = `<svg xmlns="http://www.w3.org/2000/svg" width="16" viewBox="0 0 24 24">
  <g class="jp-icon3" fill="#616161">
    <path d="M3 3h8v8H3zM13 13h8v8h-8z"/>
    <path d="M13 3h8v8h-8zm1.8 1.8v4.4h4.4V4.8zM3 13h8v8H3zm1.8 1.8v4.4h4.4v-4.4z"/>
  </g>
</svg>`;

export const sidebarIcon = new LabIcon({ name: 'det-jupyter:sidebar', svgstr: SVG });
