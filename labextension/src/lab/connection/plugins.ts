import type { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { ISettingRegistry } from '@jupyterlab/settingregistry';
import { ITranslator, nullTranslator } from '@jupyterlab/translation';

import { IDetJupyter } from '../tokens.js';
import { DetJupyter } from './connection.js';

const connection: JupyterFrontEndPlugin<IDetJupyter> = {
  id: 'det-jupyter:connection',
  description: 'The connection to det_jupyter that its other plugins share.',
  autoStart: true,
  provides: IDetJupyter,
  optional: [ISettingRegistry, ITranslator],
  activate: (
    app: JupyterFrontEnd,
    registry: ISettingRegistry | null,
    translator: ITranslator | null
  ) => {
    const trans = (translator ?? nullTranslator).load('det_jupyter');
    const shared = new DetJupyter(app.serviceManager.serverSettings, trans);
    if (registry !== null) {
      void shared.settings.load(registry);
    }
    return shared;
  }
};

export const connectionPlugins: JupyterFrontEndPlugin<unknown>[] = [connection];
