/** Commands on a running trial or one of its ranks: stacks, logs, console, page, kill. */
import type { JupyterFrontEnd } from '@jupyterlab/application';
import { Notification, type MainAreaWidget } from '@jupyterlab/apputils';
import { consoleIcon } from '@jupyterlab/ui-components';
import type { ReadonlyPartialJSONObject } from '@lumino/coreutils';

import type { ITrans } from '../../model/trans.js';
import { Commands, type IDetJupyter } from '../tokens.js';
import { Consoles } from './consoles.js';
import { stacksIcon, statusIcon } from './runningicons.js';
import { killTrial } from './killing.js';
import { placeOf, placeSchema } from './ranktarget.js';
import { showStacks, stackTab, type StackView } from './stackview.js';
import type { ITrialView } from '../../model/answers.js';

type Args = ReadonlyPartialJSONObject;

export const KILL_TRIAL = 'det:kill-trial';
/** Shows the page or the logs of the item under the menu, whose arguments are fixed. */
export const SHOW_RUNNING = 'det:show-running';

function described(trans: ITrans) {
  return { args: { type: 'object', properties: placeSchema(trans) } };
}

/** Notebook 7 (`hasTabs` is false) shows one document in a page, and consoles in pages of their own. */
export function addCommands(app: JupyterFrontEnd, det: IDetJupyter, hasTabs: boolean): void {
  addStacks(app, det, hasTabs);
  addConsole(app, det, hasTabs);
  addShow(app, det);
  addKill(app, det);
  det.linkChanged.connect(() => {
    [Commands.showStacks, Commands.openConsole, KILL_TRIAL].forEach(id =>
      app.commands.notifyCommandChanged(id)
    );
  });
}

function addStacks(app: JupyterFrontEnd, det: IDetJupyter, hasTabs: boolean): void {
  const { trans } = det;
  const tabs = new Map<number, MainAreaWidget<StackView>>();
  app.commands.addCommand(Commands.showStacks, {
    label: trans.__('Show Stacks'),
    caption: trans.__('Show where each rank is at this moment'),
    icon: stacksIcon,
    isEnabled: args => placeOf(app, args) !== null && det.link.state === 'up',
    execute: args => {
      const place = placeOf(app, args);
      if (place === null) {
        return null;
      }
      if (!hasTabs) {
        return showStacks(det, place);
      }
      let tab = tabs.get(place.trial_id);
      if (tab === undefined || tab.isDisposed) {
        tab = stackTab(det, place);
        tabs.set(place.trial_id, tab);
        app.shell.add(tab, 'main', { mode: 'tab-after' });
      }
      tab.content.show_(place);
      app.shell.activateById(tab.id);
      return tab;
    },
    describedBy: described(trans)
  });
}

function addConsole(app: JupyterFrontEnd, det: IDetJupyter, hasTabs: boolean): void {
  const { trans } = det;
  const consoles = new Consoles(app, det, hasTabs);
  app.commands.addCommand(Commands.openConsole, {
    label: trans.__('Open Console'),
    caption: trans.__('Look into the rank while it trains; closing the console ends nothing'),
    icon: consoleIcon,
    isEnabled: args => consoles.arePossible && placeOf(app, args)?.rank !== undefined,
    isVisible: () => consoles.arePossible,
    execute: args => {
      const { trial_id, rank } = placeOf(app, args) ?? {};
      return trial_id === undefined || rank === undefined
        ? null
        : consoles.open({ trial_id, rank });
    },
    describedBy: described(trans)
  });
}

function addShow(app: JupyterFrontEnd, det: IDetJupyter): void {
  const { api, trans } = det;
  const wanted = (args: Args): string =>
    args.what === 'logs' ? Commands.openLogs : Commands.openExperiment;
  app.commands.addCommand(SHOW_RUNNING, {
    label: args => (args.what === 'logs' ? trans.__('Open Logs') : trans.__('Open Experiment')),
    caption: trans.__('Show what the trial does and did'),
    isEnabled: args => placeOf(app, args) !== null && app.commands.hasCommand(wanted(args)),
    execute: async args => {
      const place = placeOf(app, args);
      if (place === null) {
        return null;
      }
      try {
        const { experiment_id } = await api.get<ITrialView>(`api/trials/${place.trial_id}`);
        return await (app.commands.execute(wanted(args), {
          experiment_id,
          ...place
        }) as Promise<unknown>);
      } catch (error) {
        Notification.error((error as Error).message);
        return null;
      }
    },
    describedBy: {
      args: {
        type: 'object',
        properties: {
          ...placeSchema(trans),
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

function addKill(app: JupyterFrontEnd, det: IDetJupyter): void {
  const { trans } = det;
  app.commands.addCommand(KILL_TRIAL, {
    label: trans.__('Kill Trial…'),
    caption: trans.__('End it at once, without saving'),
    icon: statusIcon('stopping'),
    isEnabled: args => placeOf(app, args) !== null && det.link.state === 'up' && det.link.mayWrite,
    execute: args => {
      const place = placeOf(app, args);
      return place === null ? false : killTrial(det, place.trial_id);
    },
    describedBy: described(trans)
  });
}
