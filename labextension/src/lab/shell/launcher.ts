/** A card in the launcher, and entries in the command palette. */
import type { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { ICommandPalette } from '@jupyterlab/apputils';
import { ILauncher } from '@jupyterlab/launcher';
import { ITranslator, nullTranslator } from '@jupyterlab/translation';

import { sidebarIcon } from '../sidebar/icon.js';
import { Commands, IDetJupyter, OF_EXPERIMENTS } from '../tokens.js';
import { CHANGES } from './changes.js';
import { SHOW_HERE } from './experimentcommands.js';

/** The sidebar's command, with label and icon of a card. */
const LAUNCH = 'det:launch-experiments';

export const launcherPlugin: JupyterFrontEndPlugin<void> = {
  id: 'det-jupyter:launcher',
  description: 'Adds a card to the launcher that shows the experiments.',
  autoStart: true,
  requires: [IDetJupyter],
  optional: [ILauncher, ITranslator],
  activate: (
    app: JupyterFrontEnd,
    det: IDetJupyter,
    launcher: ILauncher | null,
    translator: ITranslator | null
  ) => {
    if (launcher === null) {
      return;
    }
    const { trans } = det;
    app.commands.addCommand(LAUNCH, {
      label: trans.__('Experiments'),
      caption: trans.__('Show slots and experiments in the sidebar'),
      icon: sidebarIcon,
      isVisible: () => app.commands.hasCommand(Commands.showSidebar),
      execute: () => app.commands.execute(Commands.showSidebar),
      describedBy: { args: { type: 'object', properties: {} } }
    });
    const lab = (translator ?? nullTranslator).load('jupyterlab');
    launcher.add({ command: LAUNCH, category: lab.__('Other'), rank: 1 });
  }
};

export const palettePlugin: JupyterFrontEndPlugin<void> = {
  id: 'det-jupyter:palette',
  description: 'Adds the commands to the command palette.',
  autoStart: true,
  requires: [IDetJupyter],
  optional: [ICommandPalette],
  activate: (_app: JupyterFrontEnd, det: IDetJupyter, palette: ICommandPalette | null) => {
    if (palette === null) {
      return;
    }
    const category = det.trans.__('Experiments');
    const commands = [
      Commands.showSidebar,
      Commands.runCell,
      Commands.startMaster,
      Commands.openSettings
    ];
    commands.forEach(command => palette.addItem({ command, category }));
    const args = { where: 'page' };
    CHANGES.forEach(verb =>
      palette.addItem({ command: Commands.command, category, args: { ...args, verb } })
    );
    [false, true].forEach(enabled =>
      palette.addItem({ command: Commands.switchSlot, category, args: { enabled } })
    );
    OF_EXPERIMENTS.forEach(command => palette.addItem({ command, category, args }));
    ['logs', 'compare'].forEach(what =>
      palette.addItem({ command: SHOW_HERE, category, args: { ...args, what } })
    );
  }
};
