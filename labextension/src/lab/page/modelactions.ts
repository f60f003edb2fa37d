/** What the buttons of a model's page do. */
import { Dialog, InputDialog, Notification, showDialog } from '@jupyterlab/apputils';

import { Commands, type IDetJupyter } from '../tokens.js';
import type { IModelActions } from './modelview.js';
import type { RankCommands } from './ranktools.js';

/**
 * @param nameOf - Returns the model's name, which may change.
 */
export function modelActions(
  { api, trans }: IDetJupyter,
  commands: RankCommands,
  nameOf: () => string
): IModelActions {
  const post = async (path: string, body: object): Promise<void> => {
    try {
      await api.post(`api/models/${encodeURIComponent(nameOf())}/${path}`, body);
    } catch (error) {
      Notification.error(error instanceof Error ? error.message : String(error));
    }
  };
  const addAlias = async (number: number): Promise<void> => {
    const { button, value } = await InputDialog.getText({
      title: trans.__('Alias of version %1', number),
      label: trans.__(
        'Such as production. An alias names one version: it is taken from another that has it.'
      ),
      okLabel: trans.__('Give'),
      cancelLabel: trans.__('Cancel')
    });
    if (button.accept && value) {
      await post('aliases', { alias: value.trim(), number });
    }
  };
  const remove = async (number: number): Promise<void> => {
    const { button } = await showDialog({
      title: trans.__('Delete version %1?', number),
      body: trans.__('Its checkpoint is not deleted, but from then on it can be.'),
      buttons: [
        Dialog.cancelButton({ label: trans.__('Cancel') }),
        Dialog.warnButton({ label: trans.__('Delete') })
      ]
    });
    if (button.accept) {
      await post(`versions/${number}/delete`, {});
    }
  };
  return {
    openExperiment: id => void commands.execute(Commands.openExperiment, { experiment_id: id }),
    addAlias: ({ number }) => void addAlias(number),
    removeAlias: alias => void post('aliases', { alias, number: null }),
    remove: ({ number }) => void remove(number)
  };
}
