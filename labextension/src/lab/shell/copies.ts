/** Commands that copy from an experiment: fork it, export its metrics, open them in TensorBoard, copy its id. */
import type { JupyterFrontEnd } from '@jupyterlab/application';
import { Clipboard, Notification } from '@jupyterlab/apputils';
import type { INotebookTracker } from '@jupyterlab/notebook';
import type { LabIcon } from '@jupyterlab/ui-components';

import { plain } from '../../dom/dom.js';
import { elsewhere, openBoard } from '../../metrics/board.js';
import { ENDED, type IExperimentRow } from '../../model/state.js';
import { forkCell, insertCell } from '../sidebar/cells.js';
import { Commands, type IDetJupyter } from '../tokens.js';
import { ask, mayChange, type Args } from './requests.js';
import { activateIcon, boardIcon, copyIcon, exportIcon, forkIcon } from './shellicons.js';
import { rowsOf, targetsOf, TARGET_SCHEMA, TARGETS_SCHEMA } from './target.js';
import type { IBoardAnswer, ICurve } from '../../model/answers.js';

interface IOne {
  id: string;
  label: string;
  caption: string;
  icon: LabIcon;
  /** Why it is not possible, as a part of the label; '' if it is. */
  obstacle: (row: IExperimentRow) => string;
  run: (row: IExperimentRow) => Promise<boolean>;
}

export function addCopies(
  app: JupyterFrontEnd,
  det: IDetJupyter,
  notebooks: INotebookTracker | null
): void {
  const { api, trans } = det;
  const unchangeable = ({ is_archived: isArchived }: IExperimentRow): string =>
    !mayChange(det) ? unreachable(det) : isArchived ? trans.__('it is archived') : '';
  addOne(app, det, {
    id: Commands.continueExperiment,
    label: trans.__('Continue'),
    caption: trans.__('Go on after its end: trials that did not finish do'),
    icon: activateIcon,
    obstacle: row =>
      unchangeable(row) ||
      (!ENDED.includes(row.status)
        ? trans.__('it has not ended')
        : row.status === 'completed'
          ? trans.__('it has completed; fork it')
          : ''),
    run: ({ id }) => ask(() => api.post(`api/experiments/${id}/continue`, {}))
  });
  addOne(app, det, {
    id: Commands.forkExperiment,
    label: trans.__('Fork in a New Cell'),
    caption: trans.__('Insert the cell that runs its code again, with your changes'),
    icon: forkIcon,
    obstacle: row =>
      unchangeable(row) || (notebooks === null ? trans.__('there are no notebooks here') : ''),
    run: async row => {
      if (notebooks !== null) {
        await insertCell(forkCell(row, trans), notebooks, app.commands);
      }
      return true;
    }
  });
  addOne(app, det, {
    id: Commands.exportExperiment,
    label: trans.__('Export Metrics as CSV'),
    caption: trans.__('Download every value of every metric as a table'),
    icon: exportIcon,
    obstacle: () => (det.link.state === 'up' ? '' : unreachable(det)),
    run: ({ id, name }) => ask(() => exportMetrics(det, id, name))
  });
  addOne(app, det, {
    id: Commands.openTensorBoard,
    label: trans.__('Open in TensorBoard'),
    caption: trans.__('Show its metrics in TensorBoard, in a tab of the browser'),
    icon: boardIcon,
    obstacle: () => (mayChange(det) ? '' : unreachable(det)),
    run: ({ id }) => ask(() => showBoard(det, id))
  });
  addCopyId(app, det);
}

async function showBoard({ socket, trans }: IDetJupyter, id: number): Promise<void> {
  const answer = socket.ask<IBoardAnswer>(id, 'tensorboard', {});
  const shown = Notification.emit(trans.__('TensorBoard starts …'), 'in-progress');
  try {
    const board = await answer;
    openBoard(board);
    const text = trans.__('TensorBoard runs at %1.', board.url);
    Notification.update({
      id: shown,
      message: `${text} ${plain(elsewhere(board, trans))}`,
      type: 'success',
      autoClose: false,
      actions: [
        { label: trans.__('Open'), callback: () => window.open(board.url, '_blank', 'noopener') }
      ]
    });
  } catch (error) {
    Notification.dismiss(shown);
    throw error;
  }
}

function unreachable({ link, trans }: IDetJupyter): string {
  return link.state === 'up' ? trans.__('you may only look') : trans.__('there is no connection');
}

/** Adds a command for exactly one experiment. */
function addOne(app: JupyterFrontEnd, det: IDetJupyter, one: IOne): void {
  const { trans } = det;
  const find = (args: Args): IExperimentRow | undefined => {
    const rows = rowsOf(app, det, args);
    return rows.length === 1 ? rows[0] : undefined;
  };
  app.commands.addCommand(one.id, {
    label: args => {
      const row = find(args);
      const why = row === undefined ? '' : one.obstacle(row);
      const label = why === '' ? one.label : `${one.label} (${why})`;
      return args.where === 'page' ? trans.__('Experiment: %1', label) : label;
    },
    caption: one.caption,
    icon: one.icon,
    isEnabled: args => {
      const row = find(args);
      return row !== undefined && one.obstacle(row) === '';
    },
    isVisible: args => find(args) !== undefined,
    execute: args => {
      const row = find(args);
      return row === undefined ? false : one.run(row);
    },
    describedBy: { args: { type: 'object', properties: TARGET_SCHEMA } }
  });
}

async function exportMetrics({ api, trans }: IDetJupyter, id: number, name: string): Promise<void> {
  const curves = await api.get<ICurve[]>(`api/experiments/${id}/curves`);
  if (curves.length === 0) {
    throw new Error(trans.__('Experiment %1 has reported no metrics.', id));
  }
  // Loads the drawing core on demand.
  const { download, quoted } = await import('../../charts/saving.js');
  const text = metricsTable(curves, quoted);
  const file = `experiment-${id}-${name.replace(/[^\w.-]+/g, '-')}.csv`;
  download(file, new Blob([text], { type: 'text/csv' }));
}

function addCopyId(app: JupyterFrontEnd, det: IDetJupyter): void {
  const { trans } = det;
  const label = (args: Args): string =>
    targetsOf(app, args).length > 1 ? trans.__('Copy IDs') : trans.__('Copy ID');
  app.commands.addCommand(Commands.copyExperimentId, {
    label: args => (args.where === 'page' ? trans.__('Experiment: %1', label(args)) : label(args)),
    caption: trans.__('Copy its number, as cells and the command line take it'),
    icon: copyIcon,
    isEnabled: args => targetsOf(app, args).length > 0,
    isVisible: args => targetsOf(app, args).length > 0,
    execute: args => {
      const text = targetsOf(app, args).join(' ');
      Clipboard.copyToSystem(text);
      Notification.success(trans.__('Copied: %1', text), { autoClose: 2000 });
      return text;
    },
    describedBy: { args: { type: 'object', properties: TARGETS_SCHEMA } }
  });
}

const COLUMNS = ['trial', 'group', 'steps', 'epoch', 'time', 'metric', 'value'];

/** A row for each value, curve by curve. */
export function metricsTable(curves: readonly ICurve[], quoted: (text: string) => string): string {
  const lengths = new Map<number, number>();
  curves.forEach(({ trial_id: trial, steps_per_epoch: length }) => {
    if (length !== null) {
      lengths.set(trial, length);
    }
  });
  const rows = curves.flatMap(({ trial_id: trial, group, name, steps, values, times }) => {
    const length = lengths.get(trial);
    return steps.map((step, i) =>
      [
        trial,
        quoted(group),
        step,
        length === undefined ? '' : step / length,
        times[i] ?? '',
        quoted(name),
        values[i] ?? ''
      ].join(',')
    );
  });
  return [COLUMNS.join(','), ...rows, ''].join('\r\n');
}
