/** Commands that change the name and the labels of experiments. */
import type { JupyterFrontEnd } from '@jupyterlab/application';
import { InputDialog } from '@jupyterlab/apputils';

import type { IExperimentRow } from '../../model/state.js';
import { Commands, type IDetJupyter } from '../tokens.js';
import { ask, askEach, mayChange, type Args } from './requests.js';
import { commonLabels, labelChange, parseLabels } from './changes.js';
import { returningFocus } from '../focusback.js';
import { labelIcon, renameIcon } from './shellicons.js';
import { rowsOf, TARGET_SCHEMA, TARGETS_SCHEMA } from './target.js';

export function addDetails(app: JupyterFrontEnd, det: IDetJupyter): void {
  addRename(app, det);
  addLabel(app, det);
}

function addRename(app: JupyterFrontEnd, det: IDetJupyter): void {
  const { trans } = det;
  app.commands.addCommand(Commands.renameExperiment, {
    label: args =>
      args.where === 'page' ? trans.__('Experiment: %1', trans.__('Rename…')) : trans.__('Rename…'),
    caption: trans.__('Give the experiment another name'),
    icon: renameIcon,
    isEnabled: args => mayChange(det) && rowsOf(app, det, args).length === 1,
    isVisible: args => rowsOf(app, det, args).length === 1,
    execute: async args => {
      const [row] = rowsOf(app, det, args);
      const given = typeof args.name === 'string' ? args.name : null;
      const name = row && (given ?? (await askName(det, row)));
      return !row || !name || name === row.name
        ? false
        : ask(() => det.api.post(`api/experiments/${row.id}/details`, { name }));
    },
    describedBy: {
      args: {
        type: 'object',
        properties: {
          ...TARGET_SCHEMA,
          name: { type: 'string', description: trans.__('New name; asked if omitted.') }
        }
      }
    }
  });
}

async function askName({ trans }: IDetJupyter, { id, name }: IExperimentRow): Promise<string> {
  const { button, value } = await returningFocus(
    InputDialog.getText({
      title: trans.__('Rename experiment %1', id),
      text: name,
      okLabel: trans.__('Rename'),
      cancelLabel: trans.__('Cancel')
    })
  );
  return button.accept ? (value ?? '').trim() : '';
}

function addLabel(app: JupyterFrontEnd, det: IDetJupyter): void {
  const { trans } = det;
  const label = (args: Args): string => {
    const { length } = rowsOf(app, det, args);
    return length > 1
      ? trans._n('Edit Labels of %1…', 'Edit Labels of %1…', length)
      : trans.__('Edit Labels…');
  };
  app.commands.addCommand(Commands.labelExperiment, {
    label: args => (args.where === 'page' ? trans.__('Experiment: %1', label(args)) : label(args)),
    caption: trans.__('Give the experiment other labels'),
    icon: labelIcon,
    isEnabled: args => mayChange(det) && rowsOf(app, det, args).length > 0,
    isVisible: args => rowsOf(app, det, args).length > 0,
    execute: async args => {
      const rows = rowsOf(app, det, args);
      const labels = rows.length > 0 && (labelsIn(args) ?? (await askLabels(det, rows)));
      if (!labels) {
        return false;
      }
      const change = labelChange(commonLabels(rows), labels);
      return askEach(det, rows, ({ id }) => det.api.post(`api/experiments/${id}/details`, change));
    },
    describedBy: {
      args: {
        type: 'object',
        properties: {
          ...TARGETS_SCHEMA,
          labels: {
            type: 'array',
            items: { type: 'string' },
            description: trans.__('New labels; asked for if omitted')
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

/** For several experiments: edits the labels that all have; others stay. */
async function askLabels(
  { trans }: IDetJupyter,
  rows: readonly IExperimentRow[]
): Promise<string[] | null> {
  const several = rows.length > 1;
  const { button, value } = await returningFocus(
    InputDialog.getText({
      title: several
        ? trans._n('Labels of %1 experiment', 'Labels of %1 experiments', rows.length)
        : trans.__('Labels of experiment %1', rows[0]?.id),
      label: several
        ? trans.__('Labels that all of them have, separated by commas. Other labels stay.')
        : trans.__('Separated by commas'),
      text: commonLabels(rows).join(', '),
      okLabel: trans.__('Save'),
      cancelLabel: trans.__('Cancel')
    })
  );
  return button.accept ? parseLabels(value ?? '') : null;
}
