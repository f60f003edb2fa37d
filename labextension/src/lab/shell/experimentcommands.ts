/** The commands that change experiments, and the one that starts the master. */
import type { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { Dialog, showDialog } from '@jupyterlab/apputils';
import { INotebookTracker } from '@jupyterlab/notebook';
import type { LabIcon } from '@jupyterlab/ui-components';

import type { IExperimentRow } from '../../model/state.js';
import { sidebarIcon } from '../sidebar/icon.js';
import { Commands, IDetJupyter, OF_EXPERIMENTS } from '../tokens.js';
import { ask, askEach, mayChange, type Args } from './requests.js';
import { CHANGES, isChange, isPossible, questionOf, wordsOf } from './changes.js';
import type { Change } from './changes.js';
import {
  activateIcon,
  archiveIcon,
  cancelIcon,
  compareIcon,
  deleteIcon,
  killIcon,
  logsIcon,
  pauseIcon,
  startIcon,
  unarchiveIcon
} from './shellicons.js';
import { addCopies } from './copies.js';
import { addDetails } from './naming.js';
import { addSwitchSlot } from './slotcommands.js';
import { rowsOf, targetOf, targetsOf, TARGETS_SCHEMA } from './target.js';

/** `det:show-experiment`: opens the page, or the logs, of the experiment under the context menu. */
export const SHOW_HERE = 'det:show-experiment-here';

const ICONS: Record<Change, LabIcon> = {
  pause: pauseIcon,
  activate: activateIcon,
  cancel: cancelIcon,
  kill: killIcon,
  archive: archiveIcon,
  unarchive: unarchiveIcon,
  delete: deleteIcon
};

export const commandsPlugin: JupyterFrontEndPlugin<void> = {
  id: 'det-jupyter:commands',
  description: 'Commands that change, describe and copy experiments, and start the master.',
  autoStart: true,
  requires: [IDetJupyter],
  optional: [INotebookTracker],
  activate: (app: JupyterFrontEnd, det: IDetJupyter, notebooks: INotebookTracker | null) => {
    addChange(app, det);
    addDetails(app, det);
    addCopies(app, det, notebooks);
    addShowHere(app, det);
    addSwitchSlot(app, det);
    addStartMaster(app, det);
    const changed = (): void => {
      [Commands.command, ...OF_EXPERIMENTS, Commands.startMaster].forEach(id =>
        app.commands.notifyCommandChanged(id)
      );
    };
    det.linkChanged.connect(changed);
    det.experiments.changed.connect(changed);
    det.cluster.changed.connect(() => app.commands.notifyCommandChanged(Commands.switchSlot));
  }
};

function addChange(app: JupyterFrontEnd, det: IDetJupyter): void {
  const { trans } = det;
  const possible = (args: Args): IExperimentRow[] => {
    const { verb } = args;
    return isChange(verb) ? rowsOf(app, det, args).filter(row => isPossible(verb, row)) : [];
  };
  const label = (args: Args): string => {
    const word = isChange(args.verb) ? wordsOf(args.verb, trans).label : trans.__('Change');
    const { length } = possible(args);
    return length > 1 ? trans.__('%1 (%2)', word, length) : word;
  };
  app.commands.addCommand(Commands.command, {
    label: args => (args.where === 'page' ? trans.__('Experiment: %1', label(args)) : label(args)),
    caption: args => (isChange(args.verb) ? wordsOf(args.verb, trans).caption : ''),
    icon: args => (isChange(args.verb) ? ICONS[args.verb] : sidebarIcon),
    isEnabled: args => mayChange(det) && possible(args).length > 0,
    // Menus hide commands that are not possible; the palette greys them out.
    isVisible: args =>
      args.where === 'menu'
        ? possible(args).length > 0
        : isChange(args.verb) && rowsOf(app, det, args).length > 0,
    execute: async args => {
      const { verb } = args;
      const all = rowsOf(app, det, args);
      // For one experiment the master gives the reason; of several, the possible ones are changed.
      const rows = all.length > 1 ? possible(args) : all;
      if (!isChange(verb) || rows.length === 0) {
        return false;
      }
      if (!(await isConfirmed(det, verb, rows, all.length - rows.length))) {
        return false;
      }
      return askEach(det, rows, ({ id }) => det.api.post(`api/experiments/${id}/${verb}`));
    },
    describedBy: {
      args: {
        type: 'object',
        properties: {
          ...TARGETS_SCHEMA,
          verb: {
            type: 'string',
            oneOf: CHANGES.map(change => ({ const: change, title: wordsOf(change, trans).label }))
          }
        },
        required: ['verb']
      }
    }
  });
}

/** Confirms what cannot be undone; killing only if set so. */
async function isConfirmed(
  det: IDetJupyter,
  verb: Change,
  rows: readonly IExperimentRow[],
  numLeft: number
): Promise<boolean> {
  const { trans } = det;
  const { label, warning } = wordsOf(verb, trans);
  if (warning === '' || (verb === 'kill' && !det.settings.get('confirmKill'))) {
    return true;
  }
  const { title, body } = questionOf(verb === 'kill' ? 'kill' : 'delete', rows, numLeft, trans);
  const result = await showDialog({
    title,
    body,
    buttons: [
      Dialog.cancelButton({ label: rows.length > 1 ? trans.__('Keep Them') : trans.__('Keep It') }),
      Dialog.warnButton({ label })
    ],
    defaultButton: 0
  });
  return result.button.accept;
}

/** For menus, whose arguments are fixed: finds the experiment's id in the page. */
function addShowHere(app: JupyterFrontEnd, det: IDetJupyter): void {
  const { trans } = det;
  const wanted = ({ what }: Args): string =>
    what === 'logs'
      ? Commands.openLogs
      : what === 'compare'
        ? Commands.compare
        : Commands.openExperiment;
  const wordOf = (args: Args): string => {
    const { length } = targetsOf(app, args);
    return args.what === 'logs'
      ? trans.__('Open Logs')
      : args.what !== 'compare'
        ? trans.__('Open Experiment')
        : length > 1
          ? trans.__('Compare (%1)', length)
          : trans.__('Compare With…');
  };
  const isMeant = (args: Args): boolean =>
    args.what === 'compare' ? targetsOf(app, args).length > 0 : targetOf(app, args) !== null;
  app.commands.addCommand(SHOW_HERE, {
    label: args => {
      const label = wordOf(args);
      return args.where === 'page' ? trans.__('Experiment: %1', label) : label;
    },
    caption: trans.__('Show what the experiment does and did'),
    icon: args =>
      args.what === 'logs' ? logsIcon : args.what === 'compare' ? compareIcon : sidebarIcon,
    isEnabled: isMeant,
    isVisible: args => isMeant(args) && app.commands.hasCommand(wanted(args)),
    execute: args =>
      app.commands.execute(
        wanted(args),
        args.what === 'compare'
          ? { experiment_ids: targetsOf(app, args) }
          : { experiment_id: targetOf(app, args) }
      ),
    describedBy: {
      args: {
        type: 'object',
        properties: {
          ...TARGETS_SCHEMA,
          what: {
            type: 'string',
            oneOf: [
              { const: 'page', title: trans.__('Its page') },
              { const: 'logs', title: trans.__('Its logs') },
              { const: 'compare', title: trans.__('It beside others') }
            ]
          }
        }
      }
    }
  });
}

function addStartMaster(app: JupyterFrontEnd, det: IDetJupyter): void {
  const { trans } = det;
  app.commands.addCommand(Commands.startMaster, {
    label: trans.__('Start the Master'),
    caption: trans.__('Start the service that runs experiments'),
    icon: startIcon,
    isEnabled: () => det.link.state === 'no-master' && det.link.mayWrite,
    isVisible: () => true,
    execute: async () => {
      const isDone = await ask(() => det.api.post('master/start'));
      det.retry();
      return isDone;
    },
    describedBy: { args: { type: 'object', properties: {} } }
  });
}
