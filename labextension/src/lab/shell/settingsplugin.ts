/** The plugin of the settings: it owns schema/settings.json; connection/ reads them. */
import type { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { ISettingRegistry } from '@jupyterlab/settingregistry';
import { ITranslator } from '@jupyterlab/translation';
import { IFormRendererRegistry, settingsIcon, type IFormRenderer } from '@jupyterlab/ui-components';
import { createElement, type ChangeEvent } from 'react';

import { Commands, IDetJupyter } from '../tokens.js';

const ID = 'det-jupyter:settings';
const EDITOR = 'settingeditor:open';

export const settingsPlugin: JupyterFrontEndPlugin<void> = {
  id: ID,
  description: 'Opens the settings of det_jupyter.',
  autoStart: true,
  requires: [IDetJupyter],
  optional: [IFormRendererRegistry, ISettingRegistry, ITranslator],
  activate: (
    app: JupyterFrontEnd,
    det: IDetJupyter,
    forms: IFormRendererRegistry | null,
    registry: ISettingRegistry | null,
    translator: ITranslator | null
  ) => {
    if (registry !== null && translator?.languageCode !== 'en') {
      void readTranslated(registry);
    }
    forms?.addRenderer(`${ID}.newCell`, linesField);
    const { trans } = det;
    app.commands.addCommand(Commands.openSettings, {
      label: trans.__('Experiment Settings'),
      caption: trans.__('Notifications, order, confirmations and more'),
      icon: settingsIcon,
      isVisible: () => app.commands.hasCommand(EDITOR),
      execute: () =>
        // Matches titles, which the server may have translated.
        app.commands.execute(EDITOR, { query: registry?.plugins[ID]?.schema.title ?? '' }),
      describedBy: { args: { type: 'object', properties: {} } }
    });
  }
};

/**
 * JupyterLab reads the settings of all plugins at once; its server translates those of prebuilt
 * extensions only when they are read one by one.
 */
async function readTranslated(registry: ISettingRegistry): Promise<void> {
  try {
    await registry.load(ID);
    await registry.reload(ID);
  } catch (error) {
    console.warn('det_jupyter: the texts of its settings are not translated', error);
  }
}

const ROWS = 12;

export const linesField: IFormRenderer = {
  fieldRenderer: ({ idSchema, schema, formData, onChange, readonly = false }) =>
    createElement(
      'label',
      { className: 'jp-DetLinesField' },
      schema.title,
      createElement('textarea', {
        id: idSchema.$id,
        rows: ROWS,
        spellCheck: false,
        readOnly: readonly,
        value: typeof formData === 'string' ? formData : '',
        onChange: ({ target }: ChangeEvent<HTMLTextAreaElement>) => {
          onChange(target.value);
        }
      })
    )
};
