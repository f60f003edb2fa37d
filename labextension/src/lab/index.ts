/** The plugins of the extension; each can be disabled by its id. */
import type { JupyterFrontEndPlugin } from '@jupyterlab/application';

import { connectionPlugins } from './connection/plugins.js';
import { pagePlugins } from './page/plugins.js';
import { runningPlugins } from './running/plugins.js';
import { shellPlugins } from './shell/plugins.js';
import { sidebarPlugins } from './sidebar/plugins.js';

const plugins: JupyterFrontEndPlugin<unknown>[] = [
  ...connectionPlugins,
  ...sidebarPlugins,
  ...pagePlugins,
  ...shellPlugins,
  ...runningPlugins
];

export default plugins;
