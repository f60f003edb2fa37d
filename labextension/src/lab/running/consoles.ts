/** Consoles on ranks: the server attaches a kernel to the rank by name (jupyter_server/rank_kernels.py). */
import type { JupyterFrontEnd } from '@jupyterlab/application';
import { Notification, type ISessionContext, type MainAreaWidget } from '@jupyterlab/apputils';
import type { Widget } from '@lumino/widgets';

import type { Status } from '../../model/state.js';
import { statusWord, type ITrans } from '../../model/trans.js';
import { Toast } from '../toast.js';
import type { IDetJupyter } from '../tokens.js';
import { contextOf, rankOf, type IPlace } from './ranktarget.js';
import type { ITrialView } from '../../model/answers.js';

const CREATE = 'console:create';

/** No dialog: a restart only attaches again, and no variable is lost. */
const QUIET = { skipKernelRestartDialog: true };

/** Statuses by a trial's state whose rank has ended; others count as stopping. */
const STATUSES: Readonly<Record<string, Status>> = {
  ACTIVE: 'running',
  PAUSING: 'paused',
  PAUSED: 'paused',
  COMPLETED: 'completed',
  CANCELED: 'canceled',
  ERROR: 'error'
};

/** The used part of what `console:create` returns. */
type Panel = Widget &
  Partial<Pick<MainAreaWidget, 'revealed'>> & {
    sessionContext: ISessionContext;
  };

/**
 * Returns a function that configures the consoles of ranks which have appeared since its last call,
 * also restored ones and those with a page of their own: they restart without a dialog and keep
 * their names when the ranks end.
 */
export function configureConsoles(
  shell: Pick<JupyterFrontEnd.IShell, 'widgets'>,
  trans: ITrans
): () => void {
  const seen = new WeakSet<ISessionContext>();
  return () => {
    for (const { sessionContext, title } of shell.widgets('main') as Iterable<Partial<Panel>>) {
      if (sessionContext !== undefined && title !== undefined && !seen.has(sessionContext)) {
        seen.add(sessionContext);
        configure(sessionContext, title, trans);
      }
    }
  };
}

function configure(context: ISessionContext, title: Panel['title'], trans: ITrans): void {
  let ended = '';
  const look = (): void => {
    const place = rankOf(context.session?.kernel?.name ?? '');
    if (place !== null) {
      context.kernelPreference = { ...context.kernelPreference, ...QUIET };
      ended = trans.__('Trial %1, rank %2 (ended)', place.trial_id, place.rank);
    }
  };
  look();
  context.kernelChanged.connect(look);
  // JupyterLab renames a console without a session.
  title.changed.connect(() => {
    if (ended !== '' && !context.session && title.label !== ended) {
      title.label = ended;
    }
  });
}

export class Consoles {
  constructor(
    private readonly _app: JupyterFrontEnd,
    private readonly _det: Pick<IDetJupyter, 'api' | 'trans'>,
    private readonly _hasTabs: boolean
  ) {}

  get arePossible(): boolean {
    return this._app.commands.hasCommand(CREATE);
  }

  /** Attach to a rank and show a new console, or the one that is open. */
  async open(place: Required<IPlace>): Promise<Widget | null> {
    const name = contextOf(place);
    const open = this._open.get(name);
    if (open && !open.isDisposed && open.sessionContext.session?.kernel?.status !== 'dead') {
      this._app.shell.activateById(open.id);
      return open;
    }
    try {
      return await this._attach(name, place);
    } catch (error) {
      Notification.error((error as Error).message, { autoClose: 10_000 });
      return null;
    }
  }

  private async _attach(name: string, place: Required<IPlace>): Promise<Widget> {
    const { trans } = this._det;
    const { commands, serviceManager } = this._app;
    const kernel = await serviceManager.kernels.startNew({ name });
    const panel = (await commands.execute(CREATE, {
      name: trans.__('Trial %1, rank %2', place.trial_id, place.rank),
      // Shutting it down detaches; the rank continues. A console with a page of its own must stay:
      // there, this widget is only a link and is disposed of.
      kernelPreference: { id: kernel.id, shutdownOnDispose: this._hasTabs, ...QUIET },
      insertMode: 'split-bottom'
    })) as Panel;
    kernel.dispose(); // only this connection; the console has its own
    this._open.set(name, panel);
    panel.disposed.connect(() => {
      if (this._open.get(name) === panel) {
        this._open.delete(name);
      }
    });
    panel.sessionContext.statusChanged.connect((_context, status) => {
      if (status === 'dead') {
        void this._sayWhy(place);
      }
    });
    return panel;
  }

  /** Shows a notification with the reason when the rank of a console has ended. */
  private async _sayWhy({ trial_id, rank }: Required<IPlace>): Promise<void> {
    const { api, trans } = this._det;
    const { state } = await api
      .get<Pick<ITrialView, 'state'>>(`api/trials/${trial_id}`)
      .catch(() => ({
        state: ''
      }));
    const said =
      state === ''
        ? trans.__('Rank %1 of trial %2 has ended, and with it its console.', rank, trial_id)
        : trans.__(
            'Rank %1 of trial %2 has ended, and with it its console: the trial is %3.',
            rank,
            trial_id,
            statusWord(STATUSES[state] ?? 'stopping', trans).toLowerCase()
          );
    this._endings.show(said, 'info', { autoClose: 15_000 });
  }

  private readonly _endings = new Toast(); // the ranks of a trial end together
  private readonly _open = new Map<string, Panel>();
}
