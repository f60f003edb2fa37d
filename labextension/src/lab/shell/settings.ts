/** The settings' entry: schema/settings.json is this plugin's, and connection/ reads them. */
import type { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { settingsIcon } from '@jupyterlab/ui-components';

import { Commands, IDetJupyter } from '../tokens.js';

const EDITOR = 'settingeditor:open';

export const settingsPlugin: JupyterFrontEndPlugin<void> = {
  id: 'det-jupyter:settings',
  description: 'Opens the settings of det_jupyter.',
  autoStart: true,
  requires: [IDetJupyter],
  activate: (app: JupyterFrontEnd, det: IDetJupyter) => {
    const { trans } = det;
    app.commands.addCommand(Commands.openSettings, {
      label: trans.__('Settings of Experiments'),
      caption: trans.__('Notifications, order, confirmations and more'),
      icon: settingsIcon,
      isVisible: () => app.commands.hasCommand(EDITOR),
      execute: () => app.commands.execute(EDITOR, { query: 'det-jupyter:settings' }),
      describedBy: { args: { type: 'object', properties: {} } }
    });
  }
};
