/** The commands that change experiments, and the one that starts the master. */
import type { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { Dialog, InputDialog, Notification, showDialog } from '@jupyterlab/apputils';
import type { LabIcon } from '@jupyterlab/ui-components';
import type { ReadonlyPartialJSONObject } from '@lumino/coreutils';

import { sidebarIcon } from '../sidebar/icon.js';
import { Commands, IDetJupyter } from '../tokens.js';
import { CHANGES, isChange, isPossible, labelChange, parseLabels, wordsOf } from './changes.js';
import type { Change } from './changes.js';
import {
  activateIcon,
  archiveIcon,
  cancelIcon,
  deleteIcon,
  killIcon,
  labelIcon,
  logsIcon,
  pauseIcon,
  startIcon,
  unarchiveIcon
} from './icons.js';
import { targetOf, TARGET_SCHEMA } from './target.js';
import type { IExperimentLine } from '../../model/state.js';

type Args = ReadonlyPartialJSONObject;

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
  description: 'Commands that pause, end, archive and label experiments, and start the master.',
  autoStart: true,
  requires: [IDetJupyter],
  activate: (app: JupyterFrontEnd, det: IDetJupyter) => {
    addChange(app, det);
    addLabel(app, det);
    addShowHere(app, det);
    addStartMaster(app, det);
    const changed = (): void => {
      [Commands.command, Commands.labelExperiment, Commands.startMaster].forEach(id =>
        app.commands.notifyCommandChanged(id)
      );
    };
    det.linkChanged.connect(changed);
    det.experiments.changed.connect(changed);
  }
};

/** The experiment that the arguments mean, if it is known. */
function rowOf(app: JupyterFrontEnd, det: IDetJupyter, args: Args): IExperimentLine | undefined {
  const id = targetOf(app, args);
  return id === null ? undefined : det.experiments.rows.get(id);
}

function mayChange(det: IDetJupyter): boolean {
  return det.link.state === 'up' && det.link.mayWrite;
}

/** Carry a request out; a failure is said, and `false` returned. */
async function ask(request: () => Promise<unknown>): Promise<boolean> {
  try {
    await request();
    return true;
  } catch (error) {
    Notification.error(error instanceof Error ? error.message : String(error));
    return false;
  }
}

function addChange(app: JupyterFrontEnd, det: IDetJupyter): void {
  const { trans } = det;
  const words = (args: Args) => (isChange(args.verb) ? wordsOf(args.verb, trans) : null);
  app.commands.addCommand(Commands.command, {
    label: args => {
      const label = words(args)?.label ?? trans.__('Change');
      return args.where === 'page' ? trans.__('Experiment: %1', label) : label;
    },
    caption: args => words(args)?.caption ?? '',
    icon: args => (isChange(args.verb) ? ICONS[args.verb] : sidebarIcon),
    isEnabled: args => {
      const row = rowOf(app, det, args);
      return isChange(args.verb) && row !== undefined && mayChange(det)
        ? isPossible(args.verb, row)
        : false;
    },
    isVisible: args => {
      const row = rowOf(app, det, args);
      // A menu has what is possible; the palette what there is, and greys out what is not.
      return isChange(args.verb) && row !== undefined
        ? args.where !== 'menu' || isPossible(args.verb, row)
        : false;
    },
    execute: async args => {
      const row = rowOf(app, det, args);
      if (!isChange(args.verb) || row === undefined) {
        return false;
      }
      const { verb } = args;
      if (!(await isConfirmed(det, verb, row))) {
        return false;
      }
      return ask(() => det.api.post(`api/experiments/${row.id}/${verb}`));
    },
    describedBy: {
      args: {
        type: 'object',
        properties: {
          ...TARGET_SCHEMA,
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

/** What cannot be undone is asked for again; of killing, as the settings say. */
async function isConfirmed(det: IDetJupyter, verb: Change, row: IExperimentLine): Promise<boolean> {
  const { trans } = det;
  const { label, warning } = wordsOf(verb, trans);
  if (warning === '' || (verb === 'kill' && !det.settings.get('confirmKill'))) {
    return true;
  }
  const result = await showDialog({
    title:
      verb === 'kill'
        ? trans.__('Kill experiment %1?', row.id)
        : trans.__('Delete experiment %1?', row.id),
    body: `${row.name}: ${warning}`,
    buttons: [Dialog.cancelButton({ label: trans.__('Keep It') }), Dialog.warnButton({ label })],
    defaultButton: 0
  });
  return result.button.accept;
}

function addLabel(app: JupyterFrontEnd, det: IDetJupyter): void {
  const { trans } = det;
  app.commands.addCommand(Commands.labelExperiment, {
    label: args =>
      args.where === 'page' ? trans.__('Experiment: Edit Labels…') : trans.__('Edit Labels…'),
    caption: trans.__('Give the experiment other labels'),
    icon: labelIcon,
    isEnabled: args => mayChange(det) && rowOf(app, det, args) !== undefined,
    isVisible: args => rowOf(app, det, args) !== undefined,
    execute: async args => {
      const row = rowOf(app, det, args);
      const labels = row && (labelsIn(args) ?? (await askLabels(det, row)));
      if (!row || !labels) {
        return false;
      }
      const change = labelChange(row.labels, labels);
      return ask(() => det.api.post(`api/experiments/${row.id}/details`, change));
    },
    describedBy: {
      args: {
        type: 'object',
        properties: {
          ...TARGET_SCHEMA,
          labels: {
            type: 'array',
            items: { type: 'string' },
            description: trans.__('All labels that it shall have; asked for if absent')
          }
        }
      }
    }
  });
}

function labelsIn(args: Args): string[] | null {
  const labels = args.labels as unknown;
  return Array.isArray(labels) && labels.every(label => typeof label === 'string') ? labels : null;
}

async function askLabels(det: IDetJupyter, row: IExperimentLine): Promise<string[] | null> {
  const { trans } = det;
  const { button, value } = await InputDialog.getText({
    title: trans.__('Labels of experiment %1', row.id),
    label: trans.__('Separated by commas'),
    text: row.labels.join(', '),
    okLabel: trans.__('Save'),
    cancelLabel: trans.__('Cancel')
  });
  return button.accept ? parseLabels(value ?? '') : null;
}

/** A menu's arguments are fixed, so what needs the number of an element goes through here. */
function addShowHere(app: JupyterFrontEnd, det: IDetJupyter): void {
  const { trans } = det;
  const wanted = (args: Args): string =>
    args.what === 'logs' ? Commands.openLogs : Commands.openExperiment;
  app.commands.addCommand(SHOW_HERE, {
    label: args => {
      const label = args.what === 'logs' ? trans.__('Open Logs') : trans.__('Open Experiment');
      return args.where === 'page' ? trans.__('Experiment: %1', label) : label;
    },
    caption: trans.__('Show what the experiment does and did'),
    icon: args => (args.what === 'logs' ? logsIcon : sidebarIcon),
    isEnabled: args => targetOf(app, args) !== null,
    isVisible: args => targetOf(app, args) !== null && app.commands.hasCommand(wanted(args)),
    execute: args =>
      app.commands.execute(wanted(args), { experiment_id: targetOf(app, args) ?? null }),
    describedBy: {
      args: {
        type: 'object',
        properties: {
          ...TARGET_SCHEMA,
          what: {
            type: 'string',
            oneOf: [
              { const: 'page', title: trans.__('Its page') },
              { const: 'logs', title: trans.__('Its logs') }
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
