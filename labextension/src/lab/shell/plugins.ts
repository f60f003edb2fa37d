import type { JupyterFrontEndPlugin } from '@jupyterlab/application';

import { assistantsPlugin } from './assistants.js';
import { commandsPlugin } from './experimentcommands.js';
import { launcherPlugin, palettePlugin } from './launcher.js';
import { notebookButtonPlugin } from './notebookbutton.js';
import { notificationsPlugin } from './notifications.js';
import { settingsPlugin } from './settingsplugin.js';
import { statusPlugin } from './status.js';

export const shellPlugins: JupyterFrontEndPlugin<unknown>[] = [
  assistantsPlugin,
  commandsPlugin,
  launcherPlugin,
  notebookButtonPlugin,
  notificationsPlugin,
  palettePlugin,
  settingsPlugin,
  statusPlugin
];
