import {
  ILabShell,
  type JupyterFrontEnd,
  type JupyterFrontEndPlugin
} from '@jupyterlab/application';
import { IRunningSessionManagers } from '@jupyterlab/running';

import type { IRankLine, ITrialLine } from '../../model/state.js';
import { Commands, IDetJupyter } from '../tokens.js';
import { addCommands } from './runningcommands.js';
import { configureConsoles } from './consoles.js';
import { killAll, killTrial } from './killing.js';
import { isPanelSeen, RunningTrials } from './manager.js';

const ranksPlugin: JupyterFrontEndPlugin<void> = {
  id: 'det-jupyter:ranks',
  description: 'Commands on running trials and their ranks: stacks, consoles, kill.',
  autoStart: true,
  requires: [IDetJupyter],
  optional: [ILabShell],
  activate: (app: JupyterFrontEnd, det: IDetJupyter, labShell: ILabShell | null) => {
    addCommands(app, det, labShell !== null);
    const look = configureConsoles(app.shell, det.trans);
    app.shell.currentChanged?.connect(look);
    labShell?.layoutModified.connect(look);
    void app.restored.then(look);
  }
};

const runningPlugin: JupyterFrontEndPlugin<void> = {
  id: 'det-jupyter:running',
  description: 'Trials that hold slots, and their ranks, in the Running panel.',
  autoStart: true,
  requires: [IDetJupyter],
  optional: [IRunningSessionManagers],
  activate: (app: JupyterFrontEnd, det: IDetJupyter, managers: IRunningSessionManagers | null) => {
    if (managers === null) {
      return; // no Running panel
    }
    const open = (command: string, trial: ITrialLine, rank?: IRankLine): void => {
      const { experiment_id, id: trial_id } = trial;
      const which = rank === undefined ? {} : { rank: rank.rank };
      if (app.commands.hasCommand(command)) {
        // Absent if the plugin of the panel is disabled.
        void app.commands.execute(command, { experiment_id, trial_id, ...which });
      }
    };
    const manager = new RunningTrials({
      det,
      actions: {
        openTrial: trial => open(Commands.openExperiment, trial),
        openRank: (trial, rank) => open(Commands.openLogs, trial, rank),
        kill: trial => void killTrial(det, trial.id, trial.experiment)
      },
      killAll: trials =>
        void killAll(
          det,
          trials.map(({ id }) => id)
        ),
      isSeen: isPanelSeen
    });
    managers.add(manager);
  }
};

export const runningPlugins: JupyterFrontEndPlugin<unknown>[] = [ranksPlugin, runningPlugin];
