import {
  ILabShell,
  ILayoutRestorer,
  type JupyterFrontEnd,
  type JupyterFrontEndPlugin
} from '@jupyterlab/application';
import { ICommandPalette } from '@jupyterlab/apputils';
import { INotebookTracker } from '@jupyterlab/notebook';
import { IRenderMimeRegistry } from '@jupyterlab/rendermime';
import { IStateDB } from '@jupyterlab/statedb';

import { IDetJupyter } from '../tokens.js';
import { Looks } from './looks.js';
import { MIME_RANK, rendererFactory } from './mime.js';
import { OpenNotebooks } from './notebooks.js';
import { Outputs } from './outputs.js';
import { Pages } from './pages.js';
import { SavedPictures } from './savedpictures.js';

const pages: JupyterFrontEndPlugin<void> = {
  id: 'det-jupyter:pages',
  description: 'Pages of experiments, comparisons and models in the main area.',
  autoStart: true,
  requires: [IDetJupyter],
  optional: [ILabShell, ILayoutRestorer, IStateDB, ICommandPalette, INotebookTracker],
  activate: (
    app: JupyterFrontEnd,
    shared: IDetJupyter,
    labShell: ILabShell | null,
    restorer: ILayoutRestorer | null,
    database: IStateDB | null,
    palette: ICommandPalette | null,
    tracker: INotebookTracker | null
  ) => {
    const looks = new Looks(database, 'det-jupyter:pages');
    const notebooks = new OpenNotebooks(tracker);
    const { commands } = app;
    new Pages({ app, commands, shared, looks, labShell, restorer, palette, notebooks });
  }
};

const outputs: JupyterFrontEndPlugin<void> = {
  id: 'det-jupyter:outputs',
  description: "Keeps the experiments in notebooks' outputs live, also without their kernel.",
  autoStart: true,
  requires: [IDetJupyter],
  optional: [INotebookTracker, IStateDB],
  activate: (
    app: JupyterFrontEnd,
    shared: IDetJupyter,
    tracker: INotebookTracker | null,
    database: IStateDB | null
  ) => {
    const notebooks = new OpenNotebooks(tracker);
    const pictures = new SavedPictures(shared.socket, notebooks);
    const looks = new Looks(database, 'det-jupyter:outputs');
    new Outputs({ shared, looks, notebooks, pictures, commands: app.commands });
  }
};

const mime: JupyterFrontEndPlugin<void> = {
  id: 'det-jupyter:mime',
  description:
    'Draws what notebooks keep of an experiment, also in notebooks that are not trusted.',
  autoStart: true,
  requires: [IRenderMimeRegistry],
  activate: (_app: JupyterFrontEnd, registry: IRenderMimeRegistry) => {
    registry.addFactory(rendererFactory, MIME_RANK);
  }
};

export const pagePlugins: JupyterFrontEndPlugin<unknown>[] = [pages, outputs, mime];
